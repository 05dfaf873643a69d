"""Devices and links: facts of their makers, and the one device that was measured.

Bandwidths of makers are peaks. What a hop reaches of them was measured on the H200 (`fit.py`), and
other devices are taken to reach the same share. Links are taken to reach `LINK_SHARE`; who has
measured one passes `Link.measured`.
"""

from __future__ import annotations

from dataclasses import dataclass

GB, TB = 1e9, 1e12
LINK_SHARE = 0.8
"""Of a link's bandwidth that large messages reach: an assumption, until it is measured."""
PER_NODE = 8
"""Devices that NVLink joins."""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes:
        memory: bytes that can be used.
        bandwidth: of its memory, bytes a second, by its maker.
        cache: L2, bytes.
        flops: dense float32 products a second, by its maker.
        source: where this is from.
    """

    name: str
    memory: float
    bandwidth: float
    cache: float
    flops: float
    source: str


@dataclass(frozen=True)
class Link:
    """What a device can send at a time, in one direction; and how long a message takes at least."""

    name: str
    bandwidth: float
    latency: float
    source: str
    share: float = LINK_SHARE

    @staticmethod
    def measured(name: str, sent: float, seconds: float, latency: float = 0.0) -> Link:
        """A link that sent so many bytes in so many seconds, beyond its latency."""
        return Link(name, sent / (seconds - latency), latency, "measured", share=1.0)

    def seconds(self, sent: float, messages: int = 1) -> float:
        """To send so many bytes, in so many messages one after the other."""
        return messages * self.latency + sent / (self.share * self.bandwidth)


DEVICES = {
    device.name: device
    for device in (
        Device("H200", 141 * GB, 4.8 * TB, 50e6, 67e12, "NVIDIA's data sheet of the H200 SXM"),
        Device("H100", 80 * GB, 3.35 * TB, 50e6, 67e12, "NVIDIA's data sheet of the H100 SXM"),
        Device(
            "A100", 80 * GB, 2.04 * TB, 40e6, 19.5e12, "NVIDIA's data sheet of the A100 SXM 80GB"
        ),
    )
}
LINKS = {
    link.name: link
    for link in (
        Link("NVLink 4", 450 * GB, 5e-6, "NVIDIA: 900 GB/s both ways together, H100 and H200"),
        Link("NVLink 3", 300 * GB, 5e-6, "NVIDIA: 600 GB/s both ways together, A100"),
        Link("PCIe 5 x16", 64 * GB, 10e-6, "PCI-SIG: 32 GT/s, 16 lanes"),
        Link("PCIe 4 x16", 32 * GB, 10e-6, "PCI-SIG: 16 GT/s, 16 lanes"),
        Link("InfiniBand NDR", 50 * GB, 5e-6, "NVIDIA: 400 Gb/s a port, one port a GPU"),
        Link("InfiniBand HDR", 25 * GB, 5e-6, "NVIDIA: 200 Gb/s a port, one port a GPU"),
    )
}

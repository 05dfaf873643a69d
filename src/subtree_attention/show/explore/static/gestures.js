// Wheel and fingers on the picture. One finger scrolls the page and taps; two move and zoom. The wheel
// zooms, but never holds the page: what began as scrolling goes on, and so does zooming out at the end.

const SETTLED = 250; // milliseconds after which scrolling has ended
const TAP = 10; // pixels that a finger may move in a tap
const HELD = 500; // and milliseconds that it may last

// picture: {zoomBy(factor, at), panBy(x, y), whole()}; tap(at) is called with pixels of the container.
export function gestures(container, picture, tap) {
  const spot = ({ clientX, clientY }) => {
    const box = container.getBoundingClientRect();
    return { x: clientX - box.left, y: clientY - box.top };
  };
  wheel(container, picture, spot);
  touch(container, picture, spot, tap);
}

function wheel(container, picture, spot) {
  let scrolled = -Infinity;
  addEventListener("scroll", (event) => (scrolled = event.timeStamp), { passive: true });
  container.addEventListener("wheel", (event) => {
    const pinch = event.ctrlKey; // so trackpads say that two fingers part
    const scrolling = event.timeStamp - scrolled < SETTLED;
    if (!pinch && (scrolling || (event.deltaY > 0 && picture.whole()))) return;
    event.preventDefault();
    const lines = event.deltaMode ? 33 : 1;
    const step = Math.max(-120, Math.min(120, event.deltaY * lines * (pinch ? 4 : 1)));
    picture.zoomBy(2 ** (-step / 300), spot(event));
  }, { passive: false });
}

function touch(container, picture, spot, tap) {
  let began = null, last = null;
  const listen = (name, does) => container.addEventListener(name, (event) => {
    event.stopPropagation(); // Cytoscape would take every finger for itself
    does(event);
  }, { capture: true, passive: false });

  const pair = ({ touches }) => {
    const [a, b] = [spot(touches[0]), spot(touches[1])];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
  };
  listen("touchstart", (event) => {
    last = event.touches.length === 2 ? pair(event) : null;
    began = event.touches.length === 1 ? { ...spot(event.touches[0]), at: event.timeStamp } : null;
    if (last && event.cancelable) event.preventDefault(); // it is not while the page still scrolls
  });
  listen("touchmove", (event) => {
    if (!last || event.touches.length !== 2 || !event.cancelable) return;
    event.preventDefault();
    const now = pair(event);
    picture.panBy(now.x - last.x, now.y - last.y);
    picture.zoomBy(now.apart / Math.max(last.apart, 1), now);
    last = now;
  });
  listen("touchend", (event) => {
    last = null;
    if (!began || event.touches.length) return;
    if (!event.cancelable) return; // a quick scroll: the drawing went along with the finger
    const at = spot(event.changedTouches[0]), { x, y } = began;
    if (Math.hypot(at.x - x, at.y - y) > TAP || event.timeStamp - began.at > HELD) return;
    event.preventDefault(); // or it is a click too
    tap(at);
  });
  listen("touchcancel", () => (began = last = null));
}

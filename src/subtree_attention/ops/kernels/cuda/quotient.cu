// Read-outs to levels, and the gradient of that: the quotient of c numerators and a denominator.
//
// Given on the compiler's command line: REAL, HEADS, WIDTH (c + 1), PADDED (WIDTH in whole quads),
// GROUP (lanes that share a row in the backward pass, a power of two).

typedef REAL real;
constexpr int VALUES = WIDTH - 1;  // c

struct Quotient {
  const real* value;        // [N, H, c]
  real* ones;               // [N, H, PADDED] = [value | 1 | -]
  const real* readouts;     // [hops, N, H, c + 1] of the hops first_hop, first_hop + 1, ...
  const real* hop_weights;  // [K + 1, H], or null: all levels are wanted
  real* out;                // [N, H, c], or [K + 1, N, H, c] without weights
  const real* grad;         // of out
  real* grad_readouts;      // [K, N, H, PADDED]
  real* grad_value;         // [N, H, c], what hop 0 brings
  real* products;           // [K + 1, N, H] = <grad, level>, for the gradient of the weights
  double eps;
  int hops;
  int first_hop;
  int rows;  // N * H
};

__device__ real inverse(real denominator) {  // where no walk arrives, the level is 0
  return denominator != 0 ? 1 / denominator : real(0);
}

__device__ real quotient(real numerator, real denominator) {
  const real share = inverse(denominator);  // may overflow where the level does not
  return isinf(share) ? numerator / denominator : numerator * share;
}

__device__ real padded_value(const Quotient& a, size_t row, int x) {
  return x < VALUES ? a.value[row * VALUES + x] : real(x == VALUES);
}

// ones = [value | 1]; a thread an entry.
extern "C" __global__ void pad(const Quotient a) {
  const size_t entry = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (entry < size_t(a.rows) * PADDED) a.ones[entry] = padded_value(a, entry / PADDED, entry % PADDED);
}

// out = weighted sum of levels, or the levels; a thread an entry of out.
extern "C" __global__ void combine(const Quotient a) {
  const size_t entry = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t entries = size_t(a.rows) * VALUES;
  if (entry >= entries) return;
  const size_t row = entry / VALUES;
  const int x = entry % VALUES, head = row % HEADS;
  real sum = 0;
  if (a.first_hop == 1) {  // hop 0 comes with hop 1
    sum = a.value[entry];
    if (a.hop_weights) sum *= a.hop_weights[head];
    else a.out[entry] = sum;
  } else if (a.hop_weights) {
    sum = a.out[entry];
  }
  for (int i = 0; i < a.hops; i++) {
    const real* readout = a.readouts + (size_t(i) * a.rows + row) * WIDTH;
    const real level = quotient(readout[x], readout[VALUES] + real(a.eps));
    const int hop = a.first_hop + i;
    if (a.hop_weights) sum += a.hop_weights[hop * HEADS + head] * level;
    else a.out[hop * entries + entry] = level;
  }
  if (a.hop_weights) a.out[entry] = sum;
}

// The quotient rule; a group of lanes a row of the read-outs, blockIdx.y a hop.
__device__ real summed(real part) {  // over the lanes of a group
#pragma unroll
  for (int far = GROUP / 2; far > 0; far /= 2) part += __shfl_xor_sync(~0u, part, far);
  return part;
}

extern "C" __global__ void combine_backward(const Quotient a) {
  const size_t place = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) / GROUP;
  const bool there = place < a.rows;  // all lanes stay, for their sums
  const size_t row = there ? place : 0;
  const int lane = threadIdx.x % GROUP, hop = blockIdx.y, head = row % HEADS;
  const real weight = a.hop_weights ? a.hop_weights[hop * HEADS + head] : real(1);
  const real* grad = a.grad + row * VALUES;
  if (!a.hop_weights) grad += size_t(hop) * a.rows * VALUES;
  real product = 0;
  if (hop == 0) {
    for (int x = lane; x < VALUES; x += GROUP) {
      product += grad[x] * a.value[row * VALUES + x];
      if (there) a.grad_value[row * VALUES + x] = weight * grad[x];
    }
    for (int x = lane; x < PADDED && there; x += GROUP)
      a.ones[row * PADDED + x] = padded_value(a, row, x);
    product = summed(product);
  } else {
    const real* readout = a.readouts + (size_t(hop - 1) * a.rows + row) * WIDTH;
    real* grad_readout = a.grad_readouts + (size_t(hop - 1) * a.rows + row) * PADDED;
    const real share = inverse(readout[VALUES] + real(a.eps));
    for (int x = lane; x < VALUES; x += GROUP) {
      product += grad[x] * (readout[x] * share);
      if (there) grad_readout[x] = weight * grad[x] * share;
    }
    product = summed(product);
    if (there && lane == 0) grad_readout[VALUES] = -weight * product * share;
  }
  if (there && lane == 0 && a.hop_weights) a.products[size_t(hop) * a.rows + row] = product;
}

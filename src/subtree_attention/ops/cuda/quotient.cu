// Read-outs to levels, and the gradient of that: the quotient of c numerators and a denominator.
//
// Given on the compiler's command line: REAL, HEADS, WIDTH (c + 1), PADDED (WIDTH in whole quads).

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
    const real level = readout[x] * inverse(readout[VALUES] + real(a.eps));
    const int hop = a.first_hop + i;
    if (a.hop_weights) sum += a.hop_weights[hop * HEADS + head] * level;
    else a.out[hop * entries + entry] = level;
  }
  if (a.hop_weights) a.out[entry] = sum;
}

// The quotient rule; a thread a row of the read-outs, blockIdx.y a hop.
extern "C" __global__ void combine_backward(const Quotient a) {
  const size_t row = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= a.rows) return;
  const int hop = blockIdx.y, head = row % HEADS;
  const real weight = a.hop_weights ? a.hop_weights[hop * HEADS + head] : real(1);
  const real* grad = a.grad + row * VALUES;
  if (!a.hop_weights) grad += size_t(hop) * a.rows * VALUES;
  real product = 0;
  if (hop == 0) {
    for (int x = 0; x < VALUES; x++) {
      product += grad[x] * a.value[row * VALUES + x];
      a.grad_value[row * VALUES + x] = weight * grad[x];
    }
    for (int x = 0; x < PADDED; x++) a.ones[row * PADDED + x] = padded_value(a, row, x);
  } else {
    const real* readout = a.readouts + (size_t(hop - 1) * a.rows + row) * WIDTH;
    real* grad_readout = a.grad_readouts + (size_t(hop - 1) * a.rows + row) * PADDED;
    const real share = inverse(readout[VALUES] + real(a.eps));
    for (int x = 0; x < VALUES; x++) {
      product += grad[x] * (readout[x] * share);
      grad_readout[x] = weight * grad[x] * share;
    }
    grad_readout[VALUES] = -weight * product * share;
  }
  if (a.hop_weights) a.products[size_t(hop) * a.rows + row] = product;
}

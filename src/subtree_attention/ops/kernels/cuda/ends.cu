// The two ends of a walk. Before it: the feature map, values with their column of ones, the gate of
// heads. After it: read-outs to levels, the quotient of c numerators and a denominator. And the
// gradients of both.
//
// Given on the compiler's command line: REAL, HEADS, CHANNELS (d), WIDTH (c + 1), PADDED (WIDTH in
// whole quads), GROUP (lanes that share a row in the backward pass, a power of two), MAP (the feature
// map that is applied here, ELU or UNIT; otherwise queries and keys come mapped).

typedef REAL real;
constexpr int VALUES = WIDTH - 1;  // c
constexpr int ROW = HEADS * CHANNELS;
constexpr int ELU = 1, UNIT = 2;  // elu(x) + 1, and the same over its length

struct Ends {
  const real* query;        // [N, H, d], rows query_row apart
  const real* key;          // [N, H, d], rows key_row apart
  const real* value;        // [N, H, c], rows value_row apart
  real* phi_query;          // [N, H, d]
  real* phi_key;            // [N, H, d]
  real* ones;               // [N, H, PADDED] = [value | 1 | -]
  const real* ungated;      // [K + 1, columns], hop weights for all heads or for each, and
  const real* logits;       // [K, H], of a softmax over heads, if there is a gate; then
  real* gated;              // [K + 1, H] are the hop weights
  const real* readouts;     // [hops, N, H, c + 1] of the hops first_hop, first_hop + 1, ...
  const real* hop_weights;  // [K + 1, H], or null: all levels are wanted
  const real* beta;         // [K, H], powers of the denominators, or null: 1
  real* out;                // [N, H, c], or [K + 1, N, H, c] without weights
  const real* grad;         // of out
  real* grad_readouts;      // [K, N, H, PADDED]
  real* grad_value;         // [N, H, c], rows grad_row apart, what hop 0 brings
  real* products;           // [K + 1, N, H] = <grad, level>, and
  real* grad_weights;       // [K + 1, H], their sums over nodes: the gradient of the weights
  real* beta_products;      // [K, N, H] = -<weight grad, level> log |denominator|
  real* grad_ungated;       // [K + 1, columns]
  real* grad_logits;        // [K, H]
  const real* dot;          // [dot_planes, N, H, d], the gradient of phi in slices
  const real* phi;          // [N, H, d]
  const real* given;        // [N, H, d], rows given_row apart, which became phi
  real* grad_phi;           // [N, H, d], rows grad_row apart, the gradient of what was mapped
  double eps;
  int hops;
  int first_hop;
  int all_hops;  // K
  int columns;
  int rows;  // N * H
  int query_row;
  int key_row;
  int value_row;
  int grad_row;
  int dot_planes;
  int given_row;
};

// exp(x) up to 0 and x + 1 above, each by itself: elu(x) + 1 would lose exp(x) beside its 1.
__device__ real mapped(real x) { return x > 0 ? x + 1 : exp(x); }

// The length of mapped x [d], never 0.
__device__ real length(const real* x) {
  real sum = 0;
  for (int i = 0; i < CHANNELS; i++) {
    const real phi = mapped(x[i]);
    sum += phi * phi;
  }
  const real found = sqrt(sum);
  return found < real(1e-30) ? real(1e-30) : found;  // NaN stays
}

// The first end; a thread an entry of phi_query, phi_key (if there is a map) and ones.
extern "C" __global__ void prepare(const Ends a) {
  constexpr int MAPPED = MAP ? 2 * ROW : 0, EACH = MAPPED + HEADS * PADDED;
  const size_t entry = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t node = entry / EACH;
  if (node >= a.rows / HEADS) return;
  const int at = entry % EACH;
  if (at < MAPPED) {
    const bool is_key = at >= ROW;
    const int channel = is_key ? at - ROW : at;
    const real* row = is_key ? a.key + node * a.key_row : a.query + node * a.query_row;
    real phi = mapped(row[channel]);
    if (MAP == UNIT) phi /= length(row + channel / CHANNELS * CHANNELS);
    (is_key ? a.phi_key : a.phi_query)[node * ROW + channel] = phi;
  } else {
    const int column = at - MAPPED, head = column / PADDED, x = column % PADDED;
    const real* row = a.value + node * a.value_row + head * VALUES;
    a.ones[node * (HEADS * PADDED) + column] = x < VALUES ? row[x] : real(x == VALUES);
  }
}

// The gradient of phi at an entry: its slices, added up.
__device__ real sliced(const Ends& a, size_t entry) {
  const size_t entries = size_t(a.rows) * CHANNELS;
  real sum = 0;
  for (int plane = 0; plane < a.dot_planes; plane++) sum += a.dot[plane * entries + entry];
  return sum;
}

// The gradient of what was mapped; a thread an entry.
extern "C" __global__ void unmap(const Ends a) {
  const size_t entry = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (entry >= size_t(a.rows) * CHANNELS) return;
  const size_t node = entry / ROW, first = entry - entry % CHANNELS;
  real grad = sliced(a, entry);
  if (MAP == ELU) {
    const real phi = a.phi[entry];
    grad *= phi > 1 ? real(1) : phi;  // exp(x) below 0, where it is phi itself; 1 above; NaN stays
  } else if (MAP == UNIT) {  // across phi only, which stays as long as it is
    real along = 0;
    for (size_t i = first; i < first + CHANNELS; i++) along += sliced(a, i) * a.phi[i];
    const real* row = a.given + node * a.given_row;
    const real raw = mapped(row[entry % ROW]);
    grad = (grad - along * a.phi[entry]) / length(row + first % ROW) * (raw > 1 ? real(1) : raw);
  }
  a.grad_phi[node * a.grad_row + entry % ROW] = grad;
}

__device__ real inverse(real denominator) {  // where no walk arrives, the level is 0
  return denominator != 0 ? 1 / denominator : real(0);
}

__device__ real quotient(real numerator, real denominator) {
  const real share = inverse(denominator);  // may overflow where the level does not
  return isinf(share) ? numerator / denominator : numerator * share;
}

// The power of a denominator at a hop and head, if there is one.
__device__ const real* power_at(const Ends& a, int hop, int head) {
  return a.beta ? a.beta + (hop - 1) * HEADS + head : nullptr;
}

// |x|^beta with the sign of x, as `recurrence.raised`; x itself where there is no beta.
__device__ real raised(real x, const real* beta) {
  if (!beta || x == 0) return x;
  const real power = pow(fabs(x), *beta);
  return x < 0 && *beta != 0 ? -power : power;
}

// out = weighted sum of levels, or the levels; a thread an entry of out.
extern "C" __global__ void combine(const Ends a) {
  const size_t entry = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t entries = size_t(a.rows) * VALUES;
  if (entry >= entries) return;
  const size_t row = entry / VALUES;
  const int x = entry % VALUES, head = row % HEADS;
  real sum = 0;
  if (a.first_hop == 1) {  // hop 0 comes with hop 1
    sum = a.ones[row * PADDED + x];
    if (a.hop_weights) sum *= a.hop_weights[head];
    else a.out[entry] = sum;
  } else if (a.hop_weights) {
    sum = a.out[entry];
  }
  for (int i = 0; i < a.hops; i++) {
    const real* readout = a.readouts + (size_t(i) * a.rows + row) * WIDTH;
    const int hop = a.first_hop + i;
    const real total = readout[VALUES] + real(a.eps);
    const real level = quotient(readout[x], raised(total, power_at(a, hop, head)));
    if (a.hop_weights) sum += a.hop_weights[hop * HEADS + head] * level;
    else a.out[hop * entries + entry] = level;
  }
  if (a.hop_weights) a.out[entry] = sum;
}

// The quotient rule; a group of lanes a row of the read-outs, blockIdx.y a hop from first_hop on.
// Memory of hops (grad, readouts, ...) is given from hop 0 or 1 on, whichever are asked for.
__device__ real summed(real part) {  // over the lanes of a group
#pragma unroll
  for (int far = GROUP / 2; far > 0; far /= 2) part += __shfl_xor_sync(~0u, part, far);
  return part;
}

extern "C" __global__ void combine_backward(const Ends a) {
  const size_t place = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) / GROUP;
  const bool there = place < a.rows;  // all lanes stay, for their sums
  const size_t row = there ? place : 0;
  const int lane = threadIdx.x % GROUP, hop = a.first_hop + blockIdx.y, head = row % HEADS;
  const real weight = a.hop_weights ? a.hop_weights[hop * HEADS + head] : real(1);
  const real* grad = a.grad + row * VALUES;
  if (!a.hop_weights) grad += size_t(hop) * a.rows * VALUES;
  real product = 0;
  if (hop == 0) {
    real* grad_value = a.grad_value + row / HEADS * a.grad_row + head * VALUES;
    for (int x = lane; x < VALUES; x += GROUP) {
      product += grad[x] * a.ones[row * PADDED + x];
      if (there) grad_value[x] = weight * grad[x];
    }
    product = summed(product);
  } else {
    const real* readout = a.readouts + (size_t(hop - 1) * a.rows + row) * WIDTH;
    real* grad_readout = a.grad_readouts + (size_t(hop - 1) * a.rows + row) * PADDED;
    const real total = readout[VALUES] + real(a.eps);
    const real* beta = power_at(a, hop, head);
    const real share = inverse(raised(total, beta));
    for (int x = lane; x < VALUES; x += GROUP) {
      product += grad[x] * (readout[x] * share);
      if (there) grad_readout[x] = weight * grad[x] * share;
    }
    product = summed(product);
    if (there && lane == 0) {
      const real slope = beta ? *beta * inverse(total) : share;
      grad_readout[VALUES] = -weight * product * slope;
      if (beta) {
        const real size = total != 0 ? log(fabs(total)) : real(0);
        a.beta_products[size_t(hop - 1) * a.rows + row] = -weight * product * size;
      }
    }
  }
  if (there && lane == 0 && a.hop_weights) a.products[size_t(hop) * a.rows + row] = product;
}

// grad_weights, or from their products the gradient of powers: blockIdx.x is a head, .y a hop.
extern "C" __global__ void __launch_bounds__(256) sum_products(const Ends a) {
  const size_t hop = blockIdx.y;
  const int head = blockIdx.x, nodes = a.rows / HEADS;
  const real* products = a.products + hop * a.rows + head;
  __shared__ double sums[256];
  double sum = 0;
  for (int node = threadIdx.x; node < nodes; node += 256) sum += products[size_t(node) * HEADS];
  sums[threadIdx.x] = sum;
  for (int far = 128; far > 0; far /= 2) {
    __syncthreads();
    if (threadIdx.x < far) sums[threadIdx.x] += sums[threadIdx.x + far];
  }
  if (threadIdx.x == 0) a.grad_weights[hop * HEADS + head] = sums[0];
}

// The gate: a hop's weight times softmax over heads, hop 0 as it is; a thread a hop.

// What makes exponentials of a hop's logits shares: their largest, and the sum.
struct Shares {
  real largest, sum;
  __device__ real of(real logit) const { return exp(logit - largest) / sum; }
};

__device__ Shares shares(const real* logits) {
  Shares found = {logits[0], 0};
  for (int h = 1; h < HEADS; h++) found.largest = max(found.largest, logits[h]);
  for (int h = 0; h < HEADS; h++) found.sum += exp(logits[h] - found.largest);
  return found;
}

extern "C" __global__ void gate(const Ends a) {
  const int hop = blockIdx.x * blockDim.x + threadIdx.x;
  if (hop > a.all_hops) return;
  const real* weights = a.ungated + hop * a.columns;
  const real* logits = a.logits + (hop - 1) * HEADS;
  const Shares found = hop ? shares(logits) : Shares();
  for (int h = 0; h < HEADS; h++) {
    const real weight = weights[a.columns == 1 ? 0 : h];
    a.gated[hop * HEADS + h] = hop ? weight * found.of(logits[h]) : weight;
  }
}

extern "C" __global__ void gate_backward(const Ends a) {
  const int hop = blockIdx.x * blockDim.x + threadIdx.x;
  if (hop > a.all_hops) return;
  const real* weights = a.ungated + hop * a.columns;
  const real* logits = a.logits + (hop - 1) * HEADS;
  const real* grad = a.grad_weights + hop * HEADS;
  const Shares found = hop ? shares(logits) : Shares();
  real total = 0, mean = 0;  // of the gradients of the weights; of those of the shares, by share
  for (int h = 0; h < HEADS; h++) {
    const real of_weight = hop ? grad[h] * found.of(logits[h]) : grad[h];
    if (a.columns > 1) a.grad_ungated[hop * a.columns + h] = of_weight;
    total += of_weight;
    mean += of_weight * weights[a.columns == 1 ? 0 : h];
  }
  if (a.columns == 1) a.grad_ungated[hop] = total;
  for (int h = 0; hop && h < HEADS; h++) {
    const real of_share = grad[h] * weights[a.columns == 1 ? 0 : h];
    a.grad_logits[(hop - 1) * HEADS + h] = found.of(logits[h]) * (of_share - mean);
  }
}

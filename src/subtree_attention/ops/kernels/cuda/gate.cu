// Hop weights of gated heads: weight times softmax over heads, and the gradient of that; a thread a hop.
//
// Given on the compiler's command line: REAL.

typedef REAL real;

struct Gate {
  const real* weights;  // [K + 1, columns], one for all heads or one each
  const real* logits;   // [K, H]; hop 0 is not gated
  real* table;          // [K + 1, H]
  const real* grad;     // of the table
  real* grad_weights;   // [K + 1, columns]
  real* grad_logits;    // [K, H]
  int hops;             // K
  int heads;
  int columns;
};

// What makes exponentials of a hop's logits shares: their largest, and the sum.
struct Shares {
  real largest, sum;
  __device__ real of(real logit) const { return exp(logit - largest) / sum; }
};

__device__ Shares shares(const real* logits, int heads) {
  Shares found = {logits[0], 0};
  for (int h = 1; h < heads; h++) found.largest = max(found.largest, logits[h]);
  for (int h = 0; h < heads; h++) found.sum += exp(logits[h] - found.largest);
  return found;
}

extern "C" __global__ void gate(const Gate a) {
  const int hop = blockIdx.x * blockDim.x + threadIdx.x;
  if (hop > a.hops) return;
  const real* weights = a.weights + hop * a.columns;
  const real* logits = a.logits + (hop - 1) * a.heads;
  const Shares found = hop ? shares(logits, a.heads) : Shares();
  for (int h = 0; h < a.heads; h++) {
    const real weight = weights[a.columns == 1 ? 0 : h];
    a.table[hop * a.heads + h] = hop ? weight * found.of(logits[h]) : weight;
  }
}

extern "C" __global__ void gate_backward(const Gate a) {
  const int hop = blockIdx.x * blockDim.x + threadIdx.x;
  if (hop > a.hops) return;
  const real* weights = a.weights + hop * a.columns;
  const real* logits = a.logits + (hop - 1) * a.heads;
  const real* grad = a.grad + hop * a.heads;
  const Shares found = hop ? shares(logits, a.heads) : Shares();
  real total = 0, mean = 0;  // of the gradients of the weights; of those of the shares, by share
  for (int h = 0; h < a.heads; h++) {
    const real of_weight = hop ? grad[h] * found.of(logits[h]) : grad[h];
    if (a.columns > 1) a.grad_weights[hop * a.columns + h] = of_weight;
    total += of_weight;
    mean += of_weight * weights[a.columns == 1 ? 0 : h];
  }
  if (a.columns == 1) a.grad_weights[hop] = total;
  for (int h = 0; hop && h < a.heads; h++) {
    const real of_share = grad[h] * weights[a.columns == 1 ? 0 : h];
    a.grad_logits[(hop - 1) * a.heads + h] = found.of(logits[h]) * (of_share - mean);
  }
}

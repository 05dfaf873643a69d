// Products along the entries of a matrix: out[e] = <left[row[e]], right[col[e]]>.
//
// LANES lanes share an entry (a power of two, at most a warp) and go through its two rows side by
// side. Every sum has a fixed order, so the results are the same bits every time.
//
// Given on the compiler's command line: REAL, LANES.

typedef REAL real;

struct Along {
  const real* left;   // [rows, width]
  const real* right;  // [columns, width]
  const int* row;     // [entries]
  const int* col;     // [entries]
  real* out;          // [entries]
  int entries;
  int width;
};

extern "C" __global__ void along(const Along a) {
  const size_t thread = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t entry = thread / LANES;
  const int lane = thread % LANES;
  const bool there = entry < a.entries;  // the others go along, since all lanes add up together
  const size_t at = there ? entry : a.entries - 1;
  const real* left = a.left + size_t(a.row[at]) * a.width;
  const real* right = a.right + size_t(a.col[at]) * a.width;
  real sum = 0;
#pragma unroll 4
  for (int x = lane; x < a.width; x += LANES) sum += left[x] * right[x];
#pragma unroll
  for (int far = LANES / 2; far > 0; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
  if (there && lane == 0) a.out[entry] = sum;
}

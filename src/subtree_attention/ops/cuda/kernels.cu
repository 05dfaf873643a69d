// The kernels of the CUDA backend, specialised at run time (see __init__.py for what they are for).
//
// A state holds, for every node, e = c + 1 columns (the value channels and the ones) of H * d key
// channels: [N, e, H * d]. A "unit" of lanes owns one row, or a piece of a long one, from the gather
// to the read-out: each lane has PER_LANE vectors of VECTOR key channels of one head, in all columns
// of a slice. Every sum has a fixed order, so the results are the same bits every time.
//
// Given by the compiler's command line (layout.py): REAL, STATE_BFLOAT16, HEADS, CHANNELS (d),
// WIDTH (e), COLUMNS (of a slice), VECTOR, PER_LANE, HEAD_LANES, GROUP_HEADS (heads of a unit),
// UNROLL (neighbours in flight), THREADS (of a block).

typedef REAL real;
#if STATE_BFLOAT16
typedef unsigned short stored;  // the upper half of a float
#else
typedef real stored;
#endif

constexpr int ROW = HEADS * CHANNELS;
constexpr int UNIT_LANES = GROUP_HEADS * HEAD_LANES;
constexpr int UNITS_PER_WARP = 32 / UNIT_LANES;
constexpr bool ONE_SLICE = COLUMNS == WIDTH;

template <typename T>
struct alignas(sizeof(T) * VECTOR) Pack {
  T at[VECTOR];
};

__device__ real widened(real x) { return x; }
#if STATE_BFLOAT16
__device__ real widened(stored x) { return __uint_as_float(unsigned(x) << 16); }
__device__ stored narrowed(real x, stored) {  // to the nearest, ties to even; NaN stays NaN
  const unsigned bits = __float_as_uint(x);
  if (x != x) return stored(bits >> 16 | 0x40);
  return stored((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif
__device__ real narrowed(real x, real) { return x; }

template <typename T>
__device__ Pack<T> load(const T* address) {
  return *reinterpret_cast<const Pack<T>*>(address);
}

// A word as long as a pack, to load it past the L1 cache, which other blocks do not write to.
template <int BYTES> struct Word;
template <> struct Word<4> { typedef int type; };
template <> struct Word<8> { typedef int2 type; };
template <> struct Word<16> { typedef int4 type; };

__device__ Pack<real> load_shared(const real* address) {
  typedef Word<sizeof(Pack<real>)>::type Bits;
  const Bits bits = __ldcg(reinterpret_cast<const Bits*>(address));
  return *reinterpret_cast<const Pack<real>*>(&bits);
}

// Work of one launch: new = A old for some columns of the state, and what is made of a new row while
// it is in registers. Null pointers switch a part off.
struct Hop {
  const int4* rows;     // [num_rows] (node, first edge, last edge + 1, -): rows in one piece
  const int4* pieces;   // [num_pieces, 2] the same, then (first piece of the row, how many, -, -)
  const int* col;       // [E]
  const real* weight;   // [E]
  int num_rows;
  int num_pieces;
  const stored* old_state;  // [N, columns, H * d], or null: the old state is left (x) right
  const real* left;         // [N, H, d]
  const real* right;        // [N, H, right_width]; columns beyond are 1
  int right_width;
  int first_column;  // of the state's columns among all e
  int columns;       // of the state
  const real* add_left;   // new += add_left (x) add_right: [N, H, d], [N, H, e]
  const real* add_right;
  stored* new_state;  // [N, columns, H * d]
  const real* reader;  // [N, H, d]
  real* readout;       // [N, H, readout_width] = reader . new, (+)= if read_adds
  int readout_width;
  int read_adds;
  const real* dot_right;  // [N, H, dot_width]; columns beyond are 1
  int dot_width;
  int dot_adds;
  real* dot;      // [slices, N, H, d] = sum of dot_right new over a slice's columns, (+)= if dot_adds
  int num_nodes;
  real* partial;  // [num_pieces, columns, H * d] sums of pieces
  int* arrived;   // [num_pieces, slices, H] pieces of a row that are there; 0 before and after
};

// Which lane this is, and what it owns.
struct Lane {
  int head, member, slice;  // member: of the lanes of its head
  unsigned peers;           // mask of the lanes of its head
  int first;                // lane of the warp that is member 0

  __device__ int channel(int p) const { return (p * HEAD_LANES + member) * VECTOR; }
  __device__ bool has(int p) const {
    return CHANNELS % (HEAD_LANES * VECTOR) == 0 || channel(p) < CHANNELS;
  }
  __device__ int column(const Hop& hop, int x) const {  // among all e
    return ONE_SLICE ? x : hop.first_column + slice * COLUMNS + x;
  }
  __device__ bool has_column(const Hop& hop, int x) const {
    return ONE_SLICE || (slice * COLUMNS + x < hop.columns);
  }
  __device__ size_t in_state(const Hop& hop, int node, int x, int p) const {
    const int column = ONE_SLICE ? x : slice * COLUMNS + x;
    const int columns = ONE_SLICE ? WIDTH : hop.columns;
    return (size_t(node) * columns + column) * ROW + head * CHANNELS + channel(p);
  }
  __device__ size_t in_head(int node, int p) const {
    return (size_t(node) * HEADS + head) * CHANNELS + channel(p);
  }
};

struct Sums {
  real at[COLUMNS][PER_LANE][VECTOR];
};

__device__ void clear(Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++)
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sums.at[x][p][i] = 0;
}

// right[node, head, column], and 1 beyond its width.
__device__ real factor(const real* right, int width, int node, int head, int column) {
  return column < width ? right[(size_t(node) * HEADS + head) * width + column] : real(1);
}

// sums += weight * left[node] (x) right[node]
__device__ void add_factors(const Hop& hop, const Lane& lane, const real* left, const real* right,
                            int width, int node, real weight, Sums& sums) {
  real own[PER_LANE][VECTOR];
#pragma unroll
  for (int p = 0; p < PER_LANE; p++) {
    if (!lane.has(p)) continue;
    const Pack<real> pack = load(left + lane.in_head(node, p));
#pragma unroll
    for (int i = 0; i < VECTOR; i++) own[p][i] = weight * pack.at[i];
  }
#pragma unroll
  for (int x = 0; x < COLUMNS; x++) {
    if (!lane.has_column(hop, x)) continue;
    const real scale = factor(right, width, node, lane.head, lane.column(hop, x));
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
      if (lane.has(p))
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sums.at[x][p][i] += scale * own[p][i];
  }
}

// sums = rows of the old state, or of its factors, over the edges first .. last, UNROLL at a time:
// their loads are under way together, and so are the next indices.
template <bool FACTORS>
__device__ void gather(const Hop& hop, const Lane& lane, int first, int last, Sums& sums) {
  int next[UNROLL];
  real next_weight[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const bool there = first + u < last;
    next[u] = there ? __ldg(hop.col + first + u) : -1;
    next_weight[u] = there ? __ldg(hop.weight + first + u) : real(0);
  }
  for (int edge = first; edge < last; edge += UNROLL) {
    int node[UNROLL];
    real weight[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      node[u] = next[u];
      weight[u] = next_weight[u];
      const bool there = edge + UNROLL + u < last;
      next[u] = there ? __ldg(hop.col + edge + UNROLL + u) : -1;
      next_weight[u] = there ? __ldg(hop.weight + edge + UNROLL + u) : real(0);
    }
    if (FACTORS) {
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (node[u] >= 0)
          add_factors(hop, lane, hop.left, hop.right, hop.right_width, node[u], weight[u], sums);
      continue;
    }
    Pack<stored> got[UNROLL][COLUMNS][PER_LANE];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int x = 0; x < COLUMNS; x++)
#pragma unroll
        for (int p = 0; p < PER_LANE; p++) {
          const bool there = node[u] >= 0 && lane.has_column(hop, x) && lane.has(p);
          if (there) got[u][x][p] = load(hop.old_state + lane.in_state(hop, node[u], x, p));
          else got[u][x][p] = {};
        }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int x = 0; x < COLUMNS; x++)
#pragma unroll
        for (int p = 0; p < PER_LANE; p++)
#pragma unroll
          for (int i = 0; i < VECTOR; i++)
            sums.at[x][p][i] += weight[u] * widened(got[u][x][p].at[i]);
  }
}

// Put the sums of a piece where all pieces of its row meet. The unit that comes last has the whole
// row: it adds the pieces up in their order and returns true.
__device__ bool merge(const Hop& hop, const Lane& lane, int piece, int first, int count, Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++)
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
      if (lane.has_column(hop, x) && lane.has(p)) {
        Pack<real> pack;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) pack.at[i] = sums.at[x][p][i];
        *reinterpret_cast<Pack<real>*>(hop.partial + lane.in_state(hop, piece, x, p)) = pack;
      }
  __threadfence();
  __syncwarp(lane.peers);
  int before = 0;
  int* counter = hop.arrived + (size_t(first) * gridDim.y + lane.slice) * HEADS + lane.head;
  if (lane.member == 0) before = atomicAdd(counter, 1);
  before = __shfl_sync(lane.peers, before, lane.first);
  if (before + 1 < count) return false;
  if (lane.member == 0) *counter = 0;
  __threadfence();
  clear(sums);
  for (int other = first; other < first + count; other++)
#pragma unroll
    for (int x = 0; x < COLUMNS; x++)
#pragma unroll
      for (int p = 0; p < PER_LANE; p++)
        if (lane.has_column(hop, x) && lane.has(p)) {
          const Pack<real> pack = load_shared(hop.partial + lane.in_state(hop, other, x, p));
#pragma unroll
          for (int i = 0; i < VECTOR; i++) sums.at[x][p][i] += pack.at[i];
        }
  return true;
}

// readout[node, head, column] (+)= sum over the head's channels of reader * row
__device__ void read(const Hop& hop, const Lane& lane, int node, const Sums& sums) {
  real own[PER_LANE][VECTOR];
#pragma unroll
  for (int p = 0; p < PER_LANE; p++) {
    Pack<real> pack = {};
    if (lane.has(p)) pack = load(hop.reader + lane.in_head(node, p));
#pragma unroll
    for (int i = 0; i < VECTOR; i++) own[p][i] = pack.at[i];
  }
#pragma unroll
  for (int x = 0; x < COLUMNS; x++) {
    real total = 0;
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) total += own[p][i] * sums.at[x][p][i];
    real all = total;
    if (HEAD_LANES == (HEAD_LANES & -HEAD_LANES)) {
#pragma unroll
      for (int far = HEAD_LANES / 2; far > 0; far /= 2)
        all += __shfl_xor_sync(lane.peers, all, far);
    } else {
      all = 0;
#pragma unroll
      for (int m = 0; m < HEAD_LANES; m++)
        all += __shfl_sync(lane.peers, total, lane.first + m);
    }
    const int column = lane.column(hop, x);
    if (x % HEAD_LANES == lane.member && lane.has_column(hop, x) && column < hop.readout_width) {
      real* address = hop.readout + (size_t(node) * HEADS + lane.head) * hop.readout_width + column;
      *address = hop.read_adds ? *address + all : all;
    }
  }
}

// dot[slice, node, head, channel] (+)= sum over the slice's columns of dot_right * row
__device__ void dot(const Hop& hop, const Lane& lane, int node, const Sums& sums) {
  real total[PER_LANE][VECTOR] = {};
#pragma unroll
  for (int x = 0; x < COLUMNS; x++) {
    if (!lane.has_column(hop, x)) continue;
    const real scale = factor(hop.dot_right, hop.dot_width, node, lane.head, lane.column(hop, x));
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) total[p][i] += scale * sums.at[x][p][i];
  }
#pragma unroll
  for (int p = 0; p < PER_LANE; p++) {
    if (!lane.has(p)) continue;
    real* address = hop.dot + size_t(lane.slice) * hop.num_nodes * ROW + lane.in_head(node, p);
    Pack<real> pack = {};
    if (hop.dot_adds) pack = load(address);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) pack.at[i] += total[p][i];
    *reinterpret_cast<Pack<real>*>(address) = pack;
  }
}

__device__ void write(const Hop& hop, const Lane& lane, int node, const Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++)
#pragma unroll
    for (int p = 0; p < PER_LANE; p++) {
      if (!lane.has_column(hop, x) || !lane.has(p)) continue;
      Pack<stored> pack;
#pragma unroll
      for (int i = 0; i < VECTOR; i++) pack.at[i] = narrowed(sums.at[x][p][i], stored());
      *reinterpret_cast<Pack<stored>*>(hop.new_state + lane.in_state(hop, node, x, p)) = pack;
    }
}

template <bool FACTORS>
__device__ void walk(const Hop& hop) {
  const int warp = threadIdx.x / 32, in_warp = threadIdx.x % 32;
  const int unit = in_warp / UNIT_LANES, in_unit = in_warp % UNIT_LANES;
  const int item = (blockIdx.x * (THREADS / 32) + warp) * UNITS_PER_WARP + unit;
  Lane lane;
  lane.head = blockIdx.z * GROUP_HEADS + in_unit / HEAD_LANES;
  lane.member = in_unit % HEAD_LANES;
  lane.slice = ONE_SLICE ? 0 : blockIdx.y;
  lane.first = in_warp - lane.member;
  lane.peers = (HEAD_LANES == 32 ? ~0u : (1u << HEAD_LANES % 32) - 1) << lane.first;
  if (unit >= UNITS_PER_WARP || item >= hop.num_pieces + hop.num_rows || lane.head >= HEADS) return;

  const bool whole = item >= hop.num_pieces;  // long rows come first
  const int4 work = whole ? hop.rows[item - hop.num_pieces] : hop.pieces[2 * item];
  const int node = work.x;
  Sums sums;
  clear(sums);
  gather<FACTORS>(hop, lane, work.y, work.z, sums);
  if (!whole) {
    const int4 row = hop.pieces[2 * item + 1];
    if (!merge(hop, lane, item, row.x, row.y, sums)) return;
  }
  if (hop.add_left)
    add_factors(hop, lane, hop.add_left, hop.add_right, WIDTH, node, real(1), sums);
  if (hop.reader) read(hop, lane, node, sums);
  if (hop.dot) dot(hop, lane, node, sums);
  if (hop.new_state) write(hop, lane, node, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS) walk_from_state(const Hop hop) {
  walk<false>(hop);
}

extern "C" __global__ void __launch_bounds__(THREADS) walk_from_factors(const Hop hop) {
  walk<true>(hop);
}

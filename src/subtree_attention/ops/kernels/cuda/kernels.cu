// The hop kernels of the CUDA backend, specialised at run time (__init__.py says what they are for).
//
// A state holds, for every node, e = c + 1 columns (the value channels and the ones) of H * d key
// channels: [N, e, H * d]. A "unit" of lanes owns one row, or a piece of a long one, from the gather
// to the read-out: each lane has PER_LANE vectors of VECTOR key channels of one head, in all columns
// of a slice. Every sum has a fixed order, so the results are the same bits every time.
//
// Given on the compiler's command line (layout.py): REAL, STATE_BFLOAT16, FACTORS, HEADS, CHANNELS
// (d), PADDED (e, rounded up to quads), BLOCK (columns of the state, all e or some of them), COLUMNS
// (of a slice), VECTOR, PER_LANE, HEAD_LANES, GROUP_HEADS (heads of a unit), UNROLL (neighbours in
// flight), THREADS (of a thread block), RESIDENT (threads on a multiprocessor: few, so that each has
// registers for its loads).

typedef REAL real;
#if STATE_BFLOAT16
typedef unsigned short stored;  // the upper half of a float
#else
typedef real stored;
#endif

constexpr int ROW = HEADS * CHANNELS;
constexpr int UNIT_LANES = GROUP_HEADS * HEAD_LANES;
constexpr int UNITS_PER_WARP = 32 / UNIT_LANES;
constexpr bool ONE_SLICE = COLUMNS == BLOCK;
constexpr bool QUADS = ONE_SLICE || (FACTORS && COLUMNS % 4 == 0);  // slices start where quads do
constexpr int LIMIT = FACTORS && QUADS ? (BLOCK + 3) / 4 * 4 : BLOCK;  // where they all have ended
constexpr int HELD = COLUMNS * PER_LANE * VECTOR;
constexpr int MERGE = HELD < 64 ? 64 / HELD : 1;  // pieces in flight

template <typename T>
struct alignas(sizeof(T) * VECTOR) Pack {
  T at[VECTOR];
};

struct alignas(16) Quad {
  real at[4];
};

__device__ real widened(real x) { return x; }
__device__ real narrowed(real x, real) { return x; }
#if STATE_BFLOAT16
__device__ real widened(stored x) { return __uint_as_float(unsigned(x) << 16); }
__device__ stored narrowed(real x, stored) {  // to the nearest, ties to even; NaN stays NaN
  const unsigned bits = __float_as_uint(x);
  if (x != x) return stored(bits >> 16 | 0x40);
  return stored((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

template <typename T>
__device__ Pack<T> load(const T* address) {
  return *reinterpret_cast<const Pack<T>*>(address);
}

template <typename T>
__device__ void store(T* address, Pack<T> pack) {
  *reinterpret_cast<Pack<T>*>(address) = pack;
}

// Loads that stay where they are written, so that many are under way before the first is waited
// for: left to itself, the compiler loads a few at a time to save registers.
template <int BYTES> struct Word;
template <> struct Word<2> {
  unsigned short at[1];
  __device__ void load(const void* p) { asm volatile("ld.global.u16 %0, [%1];" : "=h"(at[0]) : "l"(p)); }
};
template <> struct Word<4> {
  unsigned at[1];
  __device__ void load(const void* p) { asm volatile("ld.global.u32 %0, [%1];" : "=r"(at[0]) : "l"(p)); }
};
template <> struct Word<8> {
  unsigned at[2];
  __device__ void load(const void* p) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(at[0]), "=r"(at[1]) : "l"(p));
  }
};
template <> struct Word<16> {
  unsigned at[4];
  __device__ void load(const void* p) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(at[0]), "=r"(at[1]), "=r"(at[2]), "=r"(at[3])
                 : "l"(p));
  }
};

template <typename T>
__device__ Pack<T> load_now(const T* address) {
  Word<sizeof(Pack<T>)> word;
  word.load(address);
  return *reinterpret_cast<const Pack<T>*>(&word);
}

// One launch: new = A old for some columns of the state, and what is made of a new row while it is in
// registers. Null pointers switch a part off.
struct Hop {
  const int4* rows;     // [num_rows] (node, first edge, last edge + 1, -): rows in one piece
  const int4* pieces;   // [num_pieces, 2] the same, then (first piece of the row, how many, -, -)
  const int* col;       // [E]
  const real* weight;   // [E]
  const stored* old_state;  // [N, BLOCK, H * d]; with FACTORS it is left (x) right instead:
  const real* left;         // [N, H, d]
  const real* right;        // [N, H, PADDED]
  const real* own;          // [N, H, d] and
  const real* other;        // [N, H, PADDED] of the row itself, for what follows
  stored* new_state;        // [N, BLOCK, H * d]
  real* readout;            // [N, H, readout_width], nodes readout_row apart, (+)= own . new
  real* dot;                // [planes, N, H, d] (+)= other . new over the columns of a slice
  real* partial;            // [num_pieces, BLOCK, H * d] sums of pieces
  int* arrived;             // [num_pieces, slices, H] pieces of a row so far; 0 before and after
  int num_rows;
  int num_pieces;
  int num_nodes;
  int first_column;  // of the state's columns among all e
  int add_own;       // new += own (x) other
  int readout_width;
  int readout_row;
  int readout_adds;
  int dot_planes;  // planes of dot that hold something already
};

// Which lane this is, and where its numbers are.
struct Lane {
  int head, member, slice;  // member: of the lanes of its head
  unsigned peers;           // mask of the lanes of its head
  int first;                // lane of the warp that is member 0

  __device__ int channel(int p) const { return (p * HEAD_LANES + member) * VECTOR; }
  __device__ bool has(int p) const {
    return CHANNELS == HEAD_LANES * PER_LANE * VECTOR || channel(p) < CHANNELS;
  }
  // The last slice may begin in the one before, so that all are alike; what that one has is not
  // this one's to write.
  __device__ int start() const { return ONE_SLICE ? 0 : min(slice * COLUMNS, LIMIT - COLUMNS); }
  __device__ bool owns(int x) const {
    return ONE_SLICE || (start() + x >= slice * COLUMNS && start() + x < BLOCK);
  }
  __device__ int column(const Hop& hop, int x) const {  // among all e
    return hop.first_column + start() + x;
  }
  __device__ size_t in_state(int node) const {
    return (size_t(node) * BLOCK + start()) * ROW + head * CHANNELS;
  }
  __device__ size_t in_head(int node, int p) const {
    return (size_t(node) * HEADS + head) * CHANNELS + channel(p);
  }
};

// What a lane holds of a row, and of a row's factors.
struct Sums {
  real at[COLUMNS][PER_LANE][VECTOR];
};
struct Channels {
  real at[PER_LANE][VECTOR];
};
struct Columns {
  real at[COLUMNS];
};

__device__ void clear(Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++)
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sums.at[x][p][i] = 0;
}

__device__ void load_channels(const Lane& lane, const real* from, int node, Channels& to) {
#pragma unroll
  for (int p = 0; p < PER_LANE; p++) {
    const Pack<real> pack = load(from + lane.in_head(node, lane.has(p) ? p : 0));
#pragma unroll
    for (int i = 0; i < VECTOR; i++) to.at[p][i] = lane.has(p) ? pack.at[i] : real(0);
  }
}

__device__ void load_columns(const Hop& hop, const Lane& lane, const real* from, int node,
                             Columns& to) {
  from += (size_t(node) * HEADS + lane.head) * PADDED + lane.column(hop, 0);
  if (QUADS) {
#pragma unroll
    for (int x = 0; x < COLUMNS; x += 4) {
      const Quad quad = *reinterpret_cast<const Quad*>(from + x);
#pragma unroll
      for (int i = 0; i < 4 && x + i < COLUMNS; i++) to.at[x + i] = quad.at[i];
    }
  } else {
#pragma unroll
    for (int x = 0; x < COLUMNS; x++) to.at[x] = from[x];
  }
}

// sums += weight * left (x) right
__device__ void add_outer(real weight, const Channels& left, const Columns& right, Sums& sums) {
#pragma unroll
  for (int p = 0; p < PER_LANE; p++)
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      const real scaled = weight * left.at[p][i];
#pragma unroll
      for (int x = 0; x < COLUMNS; x++) sums.at[x][p][i] += scaled * right.at[x];
    }
}

// Add UNROLL rows of the old state: first all loads, then the sums. Nothing is loaded under a
// condition, or the compiler waits between the loads: a lane without a channel loads another one
// that is there, and nobody looks at what it makes of it.
__device__ void add_rows(const Hop& hop, const Lane& lane, const int* node, const real* weight,
                         Sums& sums) {
#if FACTORS
  Channels left[UNROLL];
  Columns right[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    load_channels(lane, hop.left, node[u], left[u]);
    load_columns(hop, lane, hop.right, node[u], right[u]);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) add_outer(weight[u], left[u], right[u], sums);
#else
  Pack<stored> got[UNROLL][COLUMNS][PER_LANE];
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
#pragma unroll
    for (int x = 0; x < COLUMNS; x++)
#pragma unroll
      for (int p = 0; p < PER_LANE; p++) {
        const int channel = lane.channel(lane.has(p) ? p : 0);
        got[u][x][p] = load_now(hop.old_state + lane.in_state(node[u]) + channel + x * ROW);
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
#endif
}

// The ends and weights of UNROLL edges from `edge` on. Beyond the last they are the last one's end
// and 0: that row is added anyway, so this changes nothing, whatever is in it.
__device__ void load_edges(const Hop& hop, int edge, int last, int* node, real* weight) {
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const int at = min(edge + u, last - 1);
    node[u] = __ldg(hop.col + at);
    weight[u] = __ldg(hop.weight + at);
    if (edge + u >= last) weight[u] = 0;
  }
}

// sums = the rows of the old state at the ends of the edges first .. last. The next indices are
// under way while the rows of the present ones are.
__device__ void gather(const Hop& hop, const Lane& lane, int first, int last, Sums& sums) {
  clear(sums);
  if (first == last) return;
  int node[UNROLL], next[UNROLL];
  real weight[UNROLL], next_weight[UNROLL];
  load_edges(hop, first, last, next, next_weight);
  for (int edge = first; edge < last; edge += UNROLL) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) node[u] = next[u], weight[u] = next_weight[u];
    load_edges(hop, edge + UNROLL, last, next, next_weight);
    add_rows(hop, lane, node, weight, sums);
  }
}

// Put the sums of a piece where all pieces of its row meet. The unit that comes last has the whole
// row: it adds the pieces up in their order and returns true.
__device__ bool merge(const Hop& hop, const Lane& lane, int piece, int first, int count, Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++)
#pragma unroll
    for (int p = 0; p < PER_LANE; p++) {
      if (!lane.owns(x) || !lane.has(p)) continue;
      Pack<real> pack;
#pragma unroll
      for (int i = 0; i < VECTOR; i++) pack.at[i] = sums.at[x][p][i];
      store(hop.partial + lane.in_state(piece) + lane.channel(p) + x * ROW, pack);
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
  for (int other = 0; other < count; other += MERGE) {
    Pack<real> got[MERGE][COLUMNS][PER_LANE];
#pragma unroll
    for (int u = 0; u < MERGE; u++)
#pragma unroll
      for (int x = 0; x < COLUMNS; x++)
#pragma unroll
        for (int p = 0; p < PER_LANE; p++) {
          const int at = first + min(other + u, count - 1);
          const int channel = lane.channel(lane.has(p) ? p : 0);
          const int column = lane.owns(x) ? x : COLUMNS - 1 - (LIMIT - BLOCK);  // one that is there
          got[u][x][p] = load_now(hop.partial + lane.in_state(at) + channel + column * ROW);
        }
#pragma unroll
    for (int u = 0; u < MERGE; u++)
#pragma unroll
      for (int x = 0; x < COLUMNS; x++)
#pragma unroll
        for (int p = 0; p < PER_LANE; p++)
#pragma unroll
          for (int i = 0; i < VECTOR; i++)
            sums.at[x][p][i] += other + u < count ? got[u][x][p].at[i] : real(0);
  }
  return true;
}

// readout[node, head, column] (+)= own . row
__device__ void read(const Hop& hop, const Lane& lane, int node, const Channels& own,
                     const Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++) {
    real total = 0;
#pragma unroll
    for (int p = 0; p < PER_LANE; p++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) total += own.at[p][i] * sums.at[x][p][i];
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
    if (x % HEAD_LANES == lane.member && lane.owns(x) && column < hop.readout_width) {
      real* address = hop.readout + size_t(node) * hop.readout_row + lane.head * hop.readout_width;
      address += column;
      *address = hop.readout_adds ? *address + all : all;
    }
  }
}

// dot[slice, node, head, channel] (+)= other . row
__device__ void dot(const Hop& hop, const Lane& lane, int node, const Columns& other,
                    const Sums& sums) {
#pragma unroll
  for (int p = 0; p < PER_LANE; p++) {
    if (!lane.has(p)) continue;
    real* address = hop.dot + size_t(lane.slice) * hop.num_nodes * ROW + lane.in_head(node, p);
    Pack<real> pack = {};
    if (lane.slice < hop.dot_planes) pack = load(address);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      real total = 0;
#pragma unroll
      for (int x = 0; x < COLUMNS; x++)
        if (lane.owns(x)) total += other.at[x] * sums.at[x][p][i];
      pack.at[i] += total;
    }
    store(address, pack);
  }
}

__device__ void write(const Hop& hop, const Lane& lane, int node, const Sums& sums) {
#pragma unroll
  for (int x = 0; x < COLUMNS; x++)
#pragma unroll
    for (int p = 0; p < PER_LANE; p++) {
      if (!lane.owns(x) || !lane.has(p)) continue;
      Pack<stored> pack;
#pragma unroll
      for (int i = 0; i < VECTOR; i++) pack.at[i] = narrowed(sums.at[x][p][i], stored());
      store(hop.new_state + lane.in_state(node) + lane.channel(p) + x * ROW, pack);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS) walk(const Hop hop) {
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

  const bool whole = item >= hop.num_pieces;  // pieces come first
  const int4 work = whole ? hop.rows[item - hop.num_pieces] : hop.pieces[2 * item];
  const int node = work.x;
  Channels own = {};
  Columns other = {};
  if (hop.own) load_channels(lane, hop.own, node, own);
  if (hop.other) load_columns(hop, lane, hop.other, node, other);
  Sums sums;
  gather(hop, lane, work.y, work.z, sums);
  if (!whole) {
    const int4 row = hop.pieces[2 * item + 1];
    if (!merge(hop, lane, item, row.x, row.y, sums)) return;
  }
  if (hop.add_own) add_outer(1, own, other, sums);
  if (hop.readout) read(hop, lane, node, own, sums);
  if (hop.dot) dot(hop, lane, node, other, sums);
  if (hop.new_state) write(hop, lane, node, sums);
}

#if !FACTORS
// dot[node, head, channel] (+)= sum over kept states and their columns of other . row
struct Kept {
  const stored* states;  // [num_states, N, BLOCK, H * d]
  const real* others;    // [num_states, N, H, PADDED]
  real* dot;             // [N, H, d]
  int num_states;
  int num_nodes;
  int first_column;  // of the states' columns among all e
  int adds;
};

extern "C" __global__ void dot_kept(const Kept kept) {
  constexpr int VECTORS = ROW / VECTOR;
  const size_t at = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int node = at / VECTORS, channel = at % VECTORS * VECTOR, head = channel / CHANNELS;
  if (node >= kept.num_nodes) return;
  real* dot = kept.dot + size_t(node) * ROW + channel;
  Pack<real> sum = {};
  if (kept.adds) sum = load(dot);
  for (int s = 0; s < kept.num_states; s++) {
    const size_t row = size_t(s) * kept.num_nodes + node;
    const stored* state = kept.states + row * BLOCK * ROW + channel;
    const real* other = kept.others + (row * HEADS + head) * PADDED + kept.first_column;
#pragma unroll 8
    for (int x = 0; x < BLOCK; x++) {
      const Pack<stored> pack = load(state + size_t(x) * ROW);
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sum.at[i] += other[x] * widened(pack.at[i]);
    }
  }
  store(dot, sum);
}
#endif

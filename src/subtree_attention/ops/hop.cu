// One hop of subtree attention on the GPU, for one shape: compiled at run time with these macros.
//
//   HEADS, CHANNELS   H heads of d key channels; CHANNELS is a multiple of LANE_CHANNELS
//   WIDTH             e = c + 1 columns: the value channels and the column of ones
//   SLICE             columns that a block works on (blockIdx.y picks the slice)
//   LANE_CHANNELS     key channels that a lane owns, with all columns of its slice in registers
//   SOURCE            where the neighbours' rows come from: STATE, FACTORS or PIECES
//   ADD, READ, DOT, WRITE   what happens to the gathered row, see below
//
// A unit is a node (or a piece of a node with many neighbours) and a group of heads: HEAD_LANES
// lanes a head. The state is [N, WIDTH, HEADS * CHANNELS], so the lanes of a unit read side by side.
// Every sum has a fixed order: results are the same bits every time.

#define STATE 0    // rows of a state
#define FACTORS 1  // rows of rank one: left (x) right, never stored
#define PIECES 2   // partial sums of one node's pieces, to be added up

#define HEAD_LANES (CHANNELS / LANE_CHANNELS)
#define GROUP_HEADS (HEADS * HEAD_LANES <= 32 ? HEADS : 32 / HEAD_LANES)
#define UNIT_LANES (GROUP_HEADS * HEAD_LANES)
#define WARP_UNITS (32 / UNIT_LANES)
#define ROW (HEADS * CHANNELS)

struct __align__(4 * LANE_CHANNELS) Lane { float at[LANE_CHANNELS]; };

__device__ __forceinline__ Lane load(const float* from) {
    return *reinterpret_cast<const Lane*>(from);
}

__device__ __forceinline__ float sum_over_head(float x, int first_lane) {
    if ((HEAD_LANES & (HEAD_LANES - 1)) == 0) {
#pragma unroll
        for (int step = 1; step < HEAD_LANES; step *= 2) x += __shfl_xor_sync(~0u, x, step);
        return x;
    }
    float total = 0.f;
#pragma unroll
    for (int lane = 0; lane < HEAD_LANES; ++lane) total += __shfl_sync(~0u, x, first_lane + lane);
    return total;
}

// items [4, M]: node, first and last neighbour (or piece), and the slot of the partial sum (-1:
// this unit has the whole row). gather_left [N, ROW] and gather_right [N, HEADS, WIDTH] are the
// factors; own_left, own_right likewise, for the epilogue:
//   ADD    row += own_left (x) own_right
//   READ   read[n, h, e] = sum_d own_left[d] row[e, d]
//   DOT    dot[slice, n, d] += sum_e own_right[e] row[e, d]
//   WRITE  new_state[n] = row
extern "C" __global__ void __launch_bounds__(128) hop(
    const int* __restrict__ items, int num_items, const int* __restrict__ col,
    const float* __restrict__ weight, const float* __restrict__ state,
    const float* __restrict__ gather_left, const float* __restrict__ gather_right,
    const float* __restrict__ own_left, const float* __restrict__ own_right,
    float* __restrict__ new_state, float* __restrict__ pieces, float* __restrict__ read,
    float* __restrict__ dot, long long dot_slice) {
    const int lane = threadIdx.x % 32;
    const int unit = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * WARP_UNITS + lane / UNIT_LANES;
    const int head = blockIdx.z * GROUP_HEADS + lane % UNIT_LANES / HEAD_LANES;
    const bool active = lane < WARP_UNITS * UNIT_LANES && unit < num_items && head < HEADS;
    const int first_lane = lane / HEAD_LANES * HEAD_LANES;
    const int channel = head * CHANNELS + lane % HEAD_LANES * LANE_CHANNELS;
    const int column = blockIdx.y * SLICE;
    const int columns = min(SLICE, WIDTH - column);

    int node = 0, start = 0, stop = 0, slot = -1;
    if (active) {
        node = items[unit];
        start = items[num_items + unit];
        stop = items[2 * num_items + unit];
        slot = items[3 * num_items + unit];
    }
    float row[SLICE][LANE_CHANNELS];
#pragma unroll
    for (int e = 0; e < SLICE; ++e)
#pragma unroll
        for (int d = 0; d < LANE_CHANNELS; ++d) row[e][d] = 0.f;

    for (int edge = start; edge < stop; ++edge) {
#if SOURCE == FACTORS
        const int from = col[edge];
        const float w = weight[edge];
        const Lane left = load(gather_left + (long long)from * ROW + channel);
        const float* right = gather_right + ((long long)from * HEADS + head) * WIDTH + column;
#pragma unroll
        for (int e = 0; e < SLICE; ++e)
            if (e < columns) {
                const float scaled = w * right[e];
#pragma unroll
                for (int d = 0; d < LANE_CHANNELS; ++d) row[e][d] += scaled * left.at[d];
            }
#else
#if SOURCE == STATE
        const long long from = col[edge];
        const float w = weight[edge];
#else
        const long long from = edge;
        const float w = 1.f;
#endif
        const float* other = state + (from * WIDTH + column) * ROW + channel;
#pragma unroll
        for (int e = 0; e < SLICE; ++e)
            if (e < columns) {
                const Lane theirs = load(other + e * ROW);
#pragma unroll
                for (int d = 0; d < LANE_CHANNELS; ++d) row[e][d] += w * theirs.at[d];
            }
#endif
    }

    const bool whole = active && slot < 0;
    if (active && slot >= 0) {  // a piece: its sum waits for the others
        float* to = pieces + ((long long)slot * WIDTH + column) * ROW + channel;
#pragma unroll
        for (int e = 0; e < SLICE; ++e)
            if (e < columns) {
                Lane mine;
#pragma unroll
                for (int d = 0; d < LANE_CHANNELS; ++d) mine.at[d] = row[e][d];
                *reinterpret_cast<Lane*>(to + e * ROW) = mine;
            }
    }
#if ADD || READ
    Lane left = {};
    if (whole) left = load(own_left + (long long)node * ROW + channel);
#endif
#if ADD || DOT
    float right[SLICE];
#pragma unroll
    for (int e = 0; e < SLICE; ++e)
        right[e] = whole && e < columns
            ? own_right[((long long)node * HEADS + head) * WIDTH + column + e] : 0.f;
#endif
#if ADD
#pragma unroll
    for (int e = 0; e < SLICE; ++e)
#pragma unroll
        for (int d = 0; d < LANE_CHANNELS; ++d) row[e][d] += left.at[d] * right[e];
#endif
#if READ
    __syncwarp();
#pragma unroll
    for (int e = 0; e < SLICE; ++e) {
        float mine = 0.f;
#pragma unroll
        for (int d = 0; d < LANE_CHANNELS; ++d) mine += left.at[d] * row[e][d];
        const float total = sum_over_head(mine, first_lane);
        if (whole && e < columns && lane - first_lane == e % HEAD_LANES)
            read[((long long)node * HEADS + head) * WIDTH + column + e] = total;
    }
#endif
#if DOT
    if (whole) {
        float* to = dot + blockIdx.y * dot_slice + (long long)node * ROW + channel;
        Lane mine = load(to);
#pragma unroll
        for (int e = 0; e < SLICE; ++e)
#pragma unroll
            for (int d = 0; d < LANE_CHANNELS; ++d) mine.at[d] += right[e] * row[e][d];
        *reinterpret_cast<Lane*>(to) = mine;
    }
#endif
#if WRITE
    if (whole) {
        float* to = new_state + ((long long)node * WIDTH + column) * ROW + channel;
#pragma unroll
        for (int e = 0; e < SLICE; ++e)
            if (e < columns) {
                Lane mine;
#pragma unroll
                for (int d = 0; d < LANE_CHANNELS; ++d) mine.at[d] = row[e][d];
                *reinterpret_cast<Lane*>(to + e * ROW) = mine;
            }
    }
#endif
}

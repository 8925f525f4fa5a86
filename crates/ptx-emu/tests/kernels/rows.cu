// Work on rows: root-mean-square norm with quantisation to int8, and statistics of logits.
#include "prim.h"

DEVICE float warp_sum(float v) {
    UNROLL for (int by = 16; by > 0; by /= 2) v += shuffle_xor(v, by);
    return v;
}

// One row per block: y = x / rms(x) * weight, as int8 with a scale per 32 elements.
KERNEL void rms_norm_q8(const float *x, const float *weight, i8 *codes, float *scales, u32 width, float epsilon) {
    SHARED static float partial[32];
    u32 lane = thread() & 31, warp = thread() >> 5;
    const float *row = x + (u64)block_x() * width;
    float sum = 0;
    for (u32 i = thread() * 4; i < width; i += threads() * 4) {
        Float4 v = *(const Float4 *)(row + i);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = warp_sum(sum);
#ifdef FAULT_DIVERGENT_BARRIER
    if (lane == 0) {
        partial[warp] = sum;
        barrier();
    } else {
        barrier();
    }
#else
    if (lane == 0) partial[warp] = sum;
    barrier();
#endif
#ifdef FAULT_UNWRITTEN_PARTIALS
    float total = warp_sum(partial[lane]);
#else
    float total = warp_sum(lane < threads() / 32 ? partial[lane] : 0);
#endif
    float factor = __nvvm_rsqrt_approx_f(total / (float)width + epsilon);
    for (u32 block = warp; block < width / 32; block += threads() / 32) {
        u32 at = block * 32 + lane;
        float v = row[at] * factor * weight[at];
        float largest = __builtin_fabsf(v);
#ifdef FAULT_DIVERGENT_SHUFFLE
        if (v != 0 && lane != 5)
#endif
            UNROLL for (int by = 16; by > 0; by /= 2) largest = __nvvm_fmax_f(largest, shuffle_xor(largest, by));
        float scale = largest / 127;
        int code;
        asm("cvt.rni.s32.f32 %0, %1;" : "=r"(code) : "f"(scale > 0 ? v / scale : 0));
        codes[(u64)block_x() * width + at] = (i8)code;
        if (lane == 0) scales[(u64)block_x() * (width / 32) + block] = scale;
    }
}

struct Statistics {
    float largest, sum;
    u32 at;
};

// The statistics of one row by several blocks: each writes its part, and the last to come merges them.
KERNEL void row_statistics(const float *logits, Statistics *parts, u32 *finished, Statistics *out, u32 width) {
    SHARED static Statistics warps[8];
    SHARED static u32 is_last;
    u32 lane = thread() & 31, warp = thread() >> 5, row = block_y();
    u32 share = width / blocks_x(), first = block_x() * share;
    auto merge = [](Statistics a, Statistics b) {
        bool left = a.largest > b.largest || (a.largest == b.largest && a.at < b.at);
        float largest = left ? a.largest : b.largest;
        float sum = a.sum * exp2_fast(a.largest - largest) + b.sum * exp2_fast(b.largest - largest);
        return Statistics{largest, sum, left ? a.at : b.at};
    };
    Statistics mine = {from_bits(0xff7fffff), 0, 0};
    for (u32 i = first + thread(); i < first + share; i += threads())
        mine = merge(mine, Statistics{logits[(u64)row * width + i] * 1.44269504f, 1, i});
    UNROLL for (int by = 16; by > 0; by /= 2) {
        Statistics other = {shuffle_xor(mine.largest, by), shuffle_xor(mine.sum, by), shuffle_xor(mine.at, by)};
        mine = merge(mine, other);
    }
    if (lane == 0) warps[warp] = mine;
    barrier();
#ifdef FAULT_SOME_WARPS_LEAVE
    if (warp > 0) return;
#endif
    if (thread() == 0) {
        for (u32 i = 1; i < threads() / 32; i++) mine = merge(mine, warps[i]);
        parts[row * blocks_x() + block_x()] = mine;
        fence();
        u32 before;
        asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(finished + row) : "memory");
        is_last = before == blocks_x() - 1;
        fence();
    }
    barrier();
    if (is_last && thread() == 0) {
        Statistics all = parts[row * blocks_x()];
        for (u32 i = 1; i < blocks_x(); i++) all = merge(all, parts[row * blocks_x() + i]);
        out[row] = all;
    }
}

// How often each value occurs: atomics on shared memory, then on global memory.
KERNEL void histogram(const u8 *values, u32 *counts, u32 length) {
    SHARED static u32 local[256];
    for (u32 i = thread(); i < 256; i += threads()) local[i] = 0;
    barrier();
    for (u32 i = block_x() * threads() + thread(); i < length; i += blocks_x() * threads())
        asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(shared_address(&local[values[i]])) : "memory");
    barrier();
    for (u32 i = thread(); i < 256; i += threads())
        if (local[i]) asm volatile("red.global.add.u32 [%0], %1;" ::"l"(counts + i), "r"(local[i]) : "memory");
}

// Each warp turns its 32 values around through shared memory.
KERNEL void reverse_in_warp(const u32 *in, u32 *out) {
    SHARED static u32 buffer[128];
    buffer[thread()] = in[block_x() * 128 + thread()];
    sync_warp();
    out[block_x() * 128 + thread()] = buffer[thread() ^ 31];
}

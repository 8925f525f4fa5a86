// out[n, m] = sum over quant blocks of 32: scale_a * scale_b * (a . b), int8, through a pipeline of two stages.
//
// A block computes 32 rows of weights by 32 tokens with four warps, 64 elements of the inner dimension at a time.
// The FAULT_* macros make the mistakes that the tests want to see caught.
#include "prim.h"

#ifdef FAULT_MISALIGNED_ROWS
const u32 TILE = 32, STEP = 64, PAD = 72;
#else
const u32 TILE = 32, STEP = 64, PAD = 80;
#endif

struct alignas(16) Stage {
    i8 a[TILE][PAD];
    i8 b[TILE][PAD];
};

KERNEL void gemm_q8(const i8 *a, const float *a_scales, const i8 *b, const float *b_scales, float *out, u32 rows,
                    u32 tokens, u32 inner) {
    SHARED static Stage stages[2];
    u32 lane = thread() & 31, warp = thread() >> 5, group = lane >> 2, quarter = lane & 3;
#ifdef FAULT_OVERLAPPING_TILES
    u32 first_row = block_x() * (TILE - 1), first_token = block_y() * TILE;
#else
    u32 first_row = block_x() * TILE, first_token = block_y() * TILE;
#endif

    auto load = [&](u32 step) {
#ifdef FAULT_ONE_STAGE
        Stage &stage = stages[0];
#else
        Stage &stage = stages[step & 1];
#endif
        UNROLL for (u32 i = 0; i < 2; i++) {
            u32 chunk = thread() + 128 * i, row = chunk >> 3, part = chunk & 7;
            bool weights = part < 4;
            u32 at = (part & 3) * 16;
#ifdef FAULT_UNCLAMPED_ROW
            u32 from = weights ? first_row + row : first_token + row;
#else
            u32 from = weights ? min32(first_row + row, rows - 1) : min32(first_token + row, tokens - 1);
#endif
            const i8 *source = (weights ? a : b) + (u64)from * inner + step * STEP + at;
            copy<16>((weights ? stage.a[row] : stage.b[row]) + at, source);
        }
        commit();
    };

    float sums[2][4] = {};
    u32 steps = inner / STEP;
    u32 row0 = warp / 2 * 16 + group, token0 = warp % 2 * 16;
    load(0);
#ifdef FAULT_OFF_BY_ONE_STEP
    for (u32 step = 0; step <= steps; step++) {
#else
    for (u32 step = 0; step < steps; step++) {
#endif
        if (step + 1 < steps) {
            load(step + 1);
            wait<1>();
        } else {
            wait<0>();
        }
        barrier(); // 1: everyone's copies of this stage have arrived
        const Stage &stage = stages[step & 1];
        UNROLL for (u32 half = 0; half < 2; half++) {
            u32 k = half * 32 + quarter * 4, block = step * 2 + half;
            u32 fragment[4];
            UNROLL for (u32 i = 0; i < 4; i++)
                fragment[i] = *(const u32 *)&stage.a[row0 + i % 2 * 8][k + i / 2 * 16];
            float low = a_scales[(u64)min32(first_row + row0, rows - 1) * (inner / 32) + block];
            float high = a_scales[(u64)min32(first_row + row0 + 8, rows - 1) * (inner / 32) + block];
            UNROLL for (u32 n = 0; n < 2; n++) {
                const i8 *column = stage.b[token0 + n * 8 + group];
                int c[4] = {};
                mma_s8(c, fragment, *(const u32 *)&column[k], *(const u32 *)&column[k + 16]);
                UNROLL for (u32 i = 0; i < 4; i++) {
                    u32 token = first_token + token0 + n * 8 + quarter * 2 + i % 2;
                    float scale = b_scales[(u64)min32(token, tokens - 1) * (inner / 32) + block];
                    sums[n][i] += (i < 2 ? low : high) * scale * (float)c[i];
                }
            }
        }
        barrier(); // 2: everyone has read this stage, which the next but one copy overwrites
    }
    UNROLL for (u32 n = 0; n < 2; n++)
        UNROLL for (u32 i = 0; i < 4; i++) {
#ifdef FAULT_WRONG_LAYOUT
            u32 row = first_row + row0 + i % 2 * 8, token = first_token + token0 + n * 8 + quarter * 2 + i / 2;
#else
            u32 row = first_row + row0 + i / 2 * 8, token = first_token + token0 + n * 8 + quarter * 2 + i % 2;
#endif
            if (row < rows && token < tokens) out[(u64)token * rows + row] = sums[n][i];
        }
}

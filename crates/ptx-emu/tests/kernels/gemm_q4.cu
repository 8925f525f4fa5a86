// out[n, m] = sum over quant blocks of 32: scale * (nibble - 8) . b, one warp per 16 rows by 8 tokens.
//
// Nibble pairs are in the order of the file: byte i of a block holds elements i (low) and i + 16 (high). Copies of 8
// bytes with zeros where there is no row; parts of a block of threads, each half of which waits at a barrier of its own.
#include "prim.h"

KERNEL void gemm_q4(const u8 *a, const float *a_scales, const i8 *b, float *out, u32 rows, u32 tokens, u32 inner) {
    SHARED static u8 weights[4][16][24];
    SHARED static i8 inputs[2][8][48];
    u32 lane = thread() & 31, warp = thread() >> 5, group = lane >> 2, quarter = lane & 3, pair = warp >> 1;
    u32 first_row = (block_x() * 2 + (warp & 1)) * 16, first_token = (block_y() * 2 + pair) * 8;
    float sums[4] = {};
    for (u32 block = 0; block < inner / 32; block++) {
        u32 row = first_row + lane / 2;
        const u8 *source = a + ((u64)min32(row, rows - 1) * (inner / 32) + block) * 16 + lane % 2 * 8;
        copy<8>(&weights[warp][lane / 2][lane % 2 * 8], source, row < rows ? 8 : 0);
        if ((warp & 1) == 0) {
            u32 token = first_token + lane / 4;
            const i8 *tokens_at = b + (u64)min32(token, tokens - 1) * inner + block * 32 + lane % 4 * 8;
            copy<8>(&inputs[pair][lane / 4][lane % 4 * 8], tokens_at, token < tokens ? 8 : 0);
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        // The two warps that share the inputs meet, without the others.
        asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
        u32 low = *(const u32 *)&weights[warp][group][quarter * 4];
        u32 high = *(const u32 *)&weights[warp][group + 8][quarter * 4];
        u32 fragment[4] = {low & 0x0f0f0f0f, high & 0x0f0f0f0f, low >> 4 & 0x0f0f0f0f, high >> 4 & 0x0f0f0f0f};
        u32 b0 = *(const u32 *)&inputs[pair][group][quarter * 4], b1 = *(const u32 *)&inputs[pair][group][quarter * 4 + 16];
        int c[4] = {}, ones[4] = {};
        const u32 eights[4] = {0x08080808, 0x08080808, 0x08080808, 0x08080808};
        mma_s8(c, fragment, b0, b1);
        mma_s8(ones, eights, b0, b1);
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 at = min32(first_row + group + i / 2 * 8, rows - 1);
            sums[i] += a_scales[(u64)at * (inner / 32) + block] * (float)(c[i] - ones[i]);
        }
        asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
    }
    UNROLL for (u32 i = 0; i < 4; i++) {
        u32 row = first_row + group + i / 2 * 8, token = first_token + quarter * 2 + i % 2;
        if (row < rows && token < tokens) out[(u64)token * rows + row] = sums[i];
    }
}

// What a card can do at most, to measure the kernels against: int8 products that nothing feeds, and copying.
#include "prim.h"

// Each warp makes `steps` times four products of 16 x 8 x 32.
GLOBAL THREADS(256) void peak_mma(u32 *out, u32 steps) {
    u32 a[4] = {thread(), thread() + 1, thread() + 2, thread() + 3};
    int c[4][4];
    UNROLL for (u32 i = 0; i < 4; i++) UNROLL for (u32 j = 0; j < 4; j++) c[i][j] = 0;
    for (u32 step = 0; step < steps; step++) {
        UNROLL for (u32 i = 0; i < 4; i++) mma_s8(c[i], a, i + step, step);
    }
    u32 sum = 0;
    UNROLL for (u32 i = 0; i < 4; i++) UNROLL for (u32 j = 0; j < 4; j++) sum += (u32)c[i][j];
    out[block_x() * 256 + thread()] = sum;
}

// Reads `quads` times 16 bytes; the sum keeps the reads alive.
GLOBAL THREADS(256) void peak_read(const Quad *in, u32 *out, u32 quads, u32 blocks) {
    u32 sum = 0;
    for (u32 i = block_x() * 256 + thread(); i < quads; i += blocks * 256) {
        Quad q = in[i];
        sum += q.x + q.y + q.z + q.w;
    }
    out[block_x() * 256 + thread()] = sum;
}

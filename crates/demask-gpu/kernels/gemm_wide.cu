// Weights in f32, f16 or bf16 times f32 activations, in f32: out[r, n] = sum over k of x[r, k] * w[n, k]. Sums run along
// k one fused multiply-add after the other, as on the CPU. Weights lie as in the file: [features, depth].
//
// A block makes 64 features of 32 rows, a thread 4 of each.
#include "statistics.h"

const u32 FEATURES = 64, ROWS = 32, DEPTH = 16;

enum Width { WIDTH_F32, WIDTH_F16, WIDTH_BF16 };

template <Width WIDTH> DEVICE float weight(const void *w, u64 at) {
    if (WIDTH == WIDTH_F32) return ((const float *)w)[at];
    u16 value = ((const u16 *)w)[at];
    return WIDTH == WIDTH_F16 ? half_to_float(value) : from_bits((u32)value << 16);
}

template <Width WIDTH>
DEVICE void gemm(const void *w, const float *x, const Target &to, u32 depth, u32 rows, u32 features) {
    SHARED float memory[FEATURES * (ROWS + 1)];
    float(*ws)[FEATURES + 1] = (float(*)[FEATURES + 1])memory;
    float(*xs)[ROWS + 1] = (float(*)[ROWS + 1])(memory + DEPTH * (FEATURES + 1));
    static_assert(DEPTH * (FEATURES + 1 + ROWS + 1) <= FEATURES * (ROWS + 1), "both tiles fit");

    u32 first = block_x() * FEATURES, first_row = block_y() * ROWS;
    u32 across = thread() % 16, down = thread() / 16;
    float sums[4][4];
    UNROLL for (u32 i = 0; i < 4; i++) UNROLL for (u32 j = 0; j < 4; j++) sums[i][j] = 0.0f;
    for (u32 start = 0; start < depth; start += DEPTH) {
        for (u32 i = thread(); i < DEPTH * FEATURES; i += 128) {
            u32 k = start + i % DEPTH, n = first + i / DEPTH;
            ws[i % DEPTH][i / DEPTH] = k < depth && n < features ? weight<WIDTH>(w, (u64)n * depth + k) : 0.0f;
        }
        for (u32 i = thread(); i < DEPTH * ROWS; i += 128) {
            u32 k = start + i % DEPTH, row = first_row + i / DEPTH;
            xs[i % DEPTH][i / DEPTH] = k < depth && row < rows ? x[(u64)row * depth + k] : 0.0f;
        }
        barrier();
        UNROLL for (u32 k = 0; k < DEPTH; k++) {
            UNROLL for (u32 i = 0; i < 4; i++) {
                float value = ws[k][across + 16 * i];
                UNROLL for (u32 j = 0; j < 4; j++) sums[i][j] = fma(value, xs[k][down * 4 + j], sums[i][j]);
            }
        }
        barrier();
    }
    if (to.into != STATISTICS) {
        UNROLL for (u32 i = 0; i < 4; i++) {
            UNROLL for (u32 j = 0; j < 4; j++) {
                u32 n = first + across + 16 * i, row = first_row + down * 4 + j;
                if (n < features && row < rows) store(to, row, n, features, sums[i][j]);
            }
        }
        return;
    }
    UNROLL for (u32 i = 0; i < 4; i++) {
        UNROLL for (u32 j = 0; j < 4; j++) memory[(across + 16 * i) * (ROWS + 1) + down * 4 + j] = sums[i][j];
    }
    barrier();
    u32 row = first_row + thread();
    if (thread() < ROWS && row < rows) {
        reduce_tile(to, memory + thread(), ROWS + 1, first, smaller(FEATURES, features - first), row, rows);
    }
}

template <Width WIDTH> DEVICE void embed(const void *w, const u32 *tokens, float *out, u32 width) {
    u32 k = block_x() * 128 + thread();
    if (k < width) out[(u64)block_y() * width + k] = weight<WIDTH>(w, (u64)tokens[block_y()] * width + k);
}

#define WIDE(name, WIDTH)                                                                                          \
    GLOBAL THREADS(128) void gemm_##name(const void *w, const float *x, Target to, u32 depth, u32 rows, u32 features) { \
        gemm<WIDTH>(w, x, to, depth, rows, features);                                                              \
    }                                                                                                              \
    GLOBAL THREADS(128) void embed_##name(const void *w, const u32 *tokens, float *out, u32 width) {               \
        embed<WIDTH>(w, tokens, out, width);                                                                       \
    }

WIDE(f32, WIDTH_F32)
WIDE(f16, WIDTH_F16)
WIDE(bf16, WIDTH_BF16)

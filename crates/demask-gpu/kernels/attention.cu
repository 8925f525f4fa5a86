// Bidirectional attention with an online softmax (Dao et al. 2022): out[r] = softmax(q[r] * K^T / sqrt(dim)) * V per
// head. Queries, keys, weights and values are f16, sums f32.
//
// A block takes 64 rows of one head, a warp 16 of them, and walks the keys 64 at a time: while one product runs, the
// matrix of the next is copied.
#include "prim.h"

const u32 KEYS = 64, WARP_ROWS = 16, WARPS = 4;

// DIM: features of a head, rounded up; keys and values have zeros there.
template <u32 DIM>
DEVICE void attend(const float *q, const u16 *keys, const u16 *values, float *out, u32 rows, u32 heads, u32 kv_heads,
                   u32 dim, u32 room, u32 len, u32 hidden, float scale) {
    // Eight more halves per row: the eight rows of a matrix lie in different banks.
    SHARED u16 ks[KEYS][DIM + 8];
    SHARED u16 vs[KEYS][DIM + 8];
    u32 head = block_x(), width = heads * dim;
    u64 first = (u64)(head / (heads / kv_heads)) * room * DIM;
    u32 row0 = block_y() * (WARP_ROWS * WARPS) + warp() * WARP_ROWS + lane() / 4; // and row0 + 8
    u32 pair = lane() % 4;

    auto copy = [&](u16(*to)[DIM + 8], const u16 *from, u32 start) {
        for (u32 i = thread(); i < KEYS * (DIM / 8); i += 32 * WARPS) {
            u32 key = i / (DIM / 8), column = i % (DIM / 8) * 8;
            bool real = start + key < len;
            copy16_or_zero(&to[key][column], from + first + (u64)(real ? start + key : 0) * DIM + column, real);
        }
    };

    // This warp's queries, as `mma` takes its first operand.
    u32 queries[DIM / 16][4];
    UNROLL for (u32 k = 0; k < DIM / 16; k++) {
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 row = row0 + i % 2 * 8, column = 16 * k + 2 * pair + i / 2 * 8;
            const float *at = q + (u64)row * width + head * dim + column;
            bool real = row < rows && column < dim; // an even dim
            queries[k][i] = real ? pack_halves(at[0], at[1]) : 0;
        }
    }

    float sums[DIM / 8][4];
    UNROLL for (u32 n = 0; n < DIM / 8; n++) UNROLL for (u32 i = 0; i < 4; i++) sums[n][i] = 0.0f;
    // Finite, so that a difference of two of them is a number.
    float greatest[2] = {-1e30f, -1e30f}, total[2] = {0.0f, 0.0f};

    copy(ks, keys, 0);
    commit();
    for (u32 start = 0; start < len; start += KEYS) {
        copy(vs, values, start);
        commit();
        wait<1>();
        barrier();
        float scores[KEYS / 8][4];
        UNROLL for (u32 n = 0; n < KEYS / 8; n++) UNROLL for (u32 i = 0; i < 4; i++) scores[n][i] = 0.0f;
        UNROLL for (u32 n = 0; n < KEYS / 16; n++) {
            UNROLL for (u32 k = 0; k < DIM / 16; k++) {
                // Keys 0 to 7 with features 0 to 7 and 8 to 15, then keys 8 to 15.
                u32 b[4];
                load_matrices(b, &ks[16 * n + lane() / 16 * 8 + lane() % 8][16 * k + lane() / 8 % 2 * 8]);
                mma_f16(scores[2 * n], queries[k], b[0], b[1]);
                mma_f16(scores[2 * n + 1], queries[k], b[2], b[3]);
            }
        }
        barrier();
        if (start + KEYS < len) copy(ks, keys, start + KEYS);
        commit();

        UNROLL for (u32 half = 0; half < 2; half++) {
            float top = greatest[half];
            UNROLL for (u32 n = 0; n < KEYS / 8; n++) {
                UNROLL for (u32 i = 0; i < 2; i++) {
                    u32 key = start + 8 * n + 2 * pair + i;
                    // `hidden` is the position that row 0 doesn't see, or as good as infinite.
                    bool seen = key < len && key != hidden + row0 + 8 * half;
                    float &score = scores[n][2 * half + i];
                    score = seen ? score * scale : minus_infinity();
                    top = score > top ? score : top;
                }
            }
            UNROLL for (u32 m = 1; m < 4; m *= 2) {
                float other = shuffle_xor(top, m);
                top = other > top ? other : top;
            }
            float factor = exp2_fast(greatest[half] - top);
            greatest[half] = top;
            total[half] *= factor;
            UNROLL for (u32 n = 0; n < KEYS / 8; n++) {
                UNROLL for (u32 i = 0; i < 2; i++) {
                    float &score = scores[n][2 * half + i];
                    score = exp2_fast(score - top);
                    total[half] += score;
                }
            }
            UNROLL for (u32 n = 0; n < DIM / 8; n++) UNROLL for (u32 i = 0; i < 2; i++) sums[n][2 * half + i] *= factor;
        }

        wait<1>();
        barrier();
        UNROLL for (u32 k = 0; k < KEYS / 16; k++) {
            u32 weights[4] = {pack_halves(scores[2 * k][0], scores[2 * k][1]),
                              pack_halves(scores[2 * k][2], scores[2 * k][3]),
                              pack_halves(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                              pack_halves(scores[2 * k + 1][2], scores[2 * k + 1][3])};
            UNROLL for (u32 n = 0; n < DIM / 16; n++) {
                // Features 0 to 7 of keys 0 to 7 and 8 to 15, then features 8 to 15; transposed on the way.
                u32 b[4];
                load_matrices_transposed(b, &vs[16 * k + lane() % 16][16 * n + lane() / 16 * 8]);
                mma_f16(sums[2 * n], weights, b[0], b[1]);
                mma_f16(sums[2 * n + 1], weights, b[2], b[3]);
            }
        }
        barrier();
    }

    UNROLL for (u32 half = 0; half < 2; half++) {
        UNROLL for (u32 m = 1; m < 4; m *= 2) total[half] += shuffle_xor(total[half], m);
        u32 row = row0 + 8 * half;
        float inverse = 1.0f / total[half];
        UNROLL for (u32 n = 0; n < DIM / 8; n++) {
            UNROLL for (u32 i = 0; i < 2; i++) {
                u32 column = 8 * n + 2 * pair + i;
                if (row < rows && column < dim) {
                    out[(u64)row * width + head * dim + column] = sums[n][2 * half + i] * inverse;
                }
            }
        }
    }
}

#define ATTEND(DIM)                                                                                                 \
    GLOBAL THREADS(128) void attention_##DIM(const float *q, const u16 *keys, const u16 *values, float *out, u32 rows, \
                                             u32 heads, u32 kv_heads, u32 dim, u32 room, u32 len, u32 hidden,       \
                                             float scale) {                                                         \
        attend<DIM>(q, keys, values, out, rows, heads, kv_heads, dim, room, len, hidden, scale);                    \
    }

ATTEND(32)
ATTEND(64)
ATTEND(96)
ATTEND(128)

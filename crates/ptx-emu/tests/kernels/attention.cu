// Bidirectional flash attention, heads of 64: a block of two warps has 32 queries of one head.
#include "prim.h"

typedef u16 half_t;
const u32 DIM = 64, KEYS = 32, PAD = 72;

DEVICE u32 pack(float low, float high) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

KERNEL void attention(const half_t *q, const half_t *k, const half_t *v, float *out, u32 length, float scale) {
    SHARED static half_t keys[KEYS][PAD];
    SHARED static half_t values[KEYS][PAD];
    SHARED static half_t queries[32][PAD];
    u32 lane = thread() & 31, warp = thread() >> 5, group = lane >> 2, quarter = lane & 3;
    u64 head = (u64)block_y() * length * DIM;
    u32 first = block_x() * 32;
    for (u32 i = thread(); i < 32 * DIM / 8; i += 64) {
        u32 row = i / 8, at = i % 8 * 8;
        *(Quad *)&queries[row][at] = *(const Quad *)(q + head + min32(first + row, length - 1) * DIM + at);
    }
    barrier();
    u32 query[4][4];
    UNROLL for (u32 i = 0; i < 4; i++)
        load_matrices(query[i], &queries[warp * 16 + lane % 16][i * 16 + lane / 16 * 8]);

    float sums[8][4] = {}, total[2] = {}, largest[2] = {-1e30f, -1e30f};
    for (u32 start = 0; start < length; start += KEYS) {
        barrier();
        for (u32 i = thread(); i < KEYS * DIM / 8; i += 64) {
            u32 row = i / 8, at = i % 8 * 8, from = start + row;
            u32 real = from < length ? 16 : 0;
            u64 source = head + min32(from, length - 1) * DIM + at;
            copy<16>(&keys[row][at], k + source, real);
            copy<16>(&values[row][at], v + source, real);
        }
        commit();
        wait<0>();
        barrier();
        float scores[4][4] = {};
        UNROLL for (u32 n = 0; n < 4; n++)
            UNROLL for (u32 i = 0; i < 4; i += 2) {
                u32 key[4];
                load_matrices(key, &keys[n * 8 + lane % 8][i * 16 + lane / 8 * 8]);
                mma_f16(scores[n], query[i], key[0], key[1]);
                mma_f16(scores[n], query[i + 1], key[2], key[3]);
            }
        UNROLL for (u32 half = 0; half < 2; half++) {
            float top = largest[half];
            UNROLL for (u32 n = 0; n < 4; n++)
                UNROLL for (u32 i = 0; i < 2; i++) {
                    float &score = scores[n][half * 2 + i];
#ifdef FAULT_UNMASKED_TAIL
                    score *= scale * 1.44269504f;
#else
                    score = start + n * 8 + quarter * 2 + i < length ? score * scale * 1.44269504f : -1e30f;
#endif
                    top = __nvvm_fmax_f(top, score);
                }
            top = __nvvm_fmax_f(top, shuffle_xor(top, 1));
            top = __nvvm_fmax_f(top, shuffle_xor(top, 2));
            float shrink = exp2_fast(largest[half] - top), sum = 0;
            largest[half] = top;
            UNROLL for (u32 n = 0; n < 4; n++)
                UNROLL for (u32 i = 0; i < 2; i++) {
                    float &score = scores[n][half * 2 + i];
                    score = exp2_fast(score - top);
                    sum += score;
                }
            total[half] = total[half] * shrink + sum;
            UNROLL for (u32 n = 0; n < 8; n++)
                UNROLL for (u32 i = 0; i < 2; i++) sums[n][half * 2 + i] *= shrink;
        }
        UNROLL for (u32 i = 0; i < 2; i++) {
            u32 weights[4] = {pack(scores[2 * i][0], scores[2 * i][1]), pack(scores[2 * i][2], scores[2 * i][3]),
                              pack(scores[2 * i + 1][0], scores[2 * i + 1][1]),
                              pack(scores[2 * i + 1][2], scores[2 * i + 1][3])};
            UNROLL for (u32 n = 0; n < 8; n++) {
                u32 value[2];
                load_transposed(value, &values[i * 16 + lane % 16][n * 8]);
                mma_f16(sums[n], weights, value[0], value[1]);
            }
        }
    }
    UNROLL for (u32 half = 0; half < 2; half++) {
        total[half] += shuffle_xor(total[half], 1);
        total[half] += shuffle_xor(total[half], 2);
        u32 row = first + warp * 16 + group + half * 8;
        if (row < length)
            UNROLL for (u32 n = 0; n < 8; n++)
                UNROLL for (u32 i = 0; i < 2; i++)
                    out[head + row * DIM + n * 8 + quarter * 2 + i] = sums[n][half * 2 + i] / total[half];
    }
}

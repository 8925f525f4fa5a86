// Quantised weights times 8-bit activations: out[r, n] = sum over k of x[r, k] * w[n, k].
//
// Compiled once per form of weights: BITS of a code (4, 5, 6, 8), HALVES scales per 32 weights, MINS whether there are
// minima, INTEGER whether scales are integers times one f16 per 256 weights. A block of four warps makes 64 features of
// up to 80 rows; a warp has 16 features, whose codes it decodes once for all rows. Weights lie in memory in the order
// in which the lanes of `mma` want them (demask-gpu, pack.rs), activations likewise (rows.cu).
//
// Every product of integers is exact, and f32 sums run along k in the order of the CPU's kernels: results are the
// CPU's, bit for bit.
#include "statistics.h"

#ifndef BITS
#error "BITS, HALVES, MINS and INTEGER are given on the command line"
#endif

const u32 STAGE = 4;           // k-groups that are copied at a time
const u32 TILES = 10;          // tiles of 8 rows per block
const u32 ROWS = 8 * TILES;    // rows per block
const u32 WARPS = 4;
const u32 FEATURES = 16 * WARPS;

const u32 LOW = BITS == 8 ? 512 : 256;                         // bytes of 16 x 32 codes: bytes or nibbles,
const u32 HIGH = BITS == 5 ? 64 : BITS == 6 ? 128 : 0;         // their bits above a nibble,
const u32 SCALES = 16 * (INTEGER ? 1 : 2) * HALVES * (1 + MINS); // and their scales, then minima
const u32 FACTORS = INTEGER ? 1 + MINS : 0;                    // f16 per row and 256 weights: d, dmin
const bool SUMS = HALVES == 2 && MINS;                         // minima per half need sums per half

struct Stage {
    u32 codes[STAGE][TILES][64];
    Float2 meta[STAGE][ROWS];
    u32 sums[SUMS ? STAGE : 1][SUMS ? ROWS : 4];
    u8 low[WARPS][STAGE][LOW];
    u8 high[HIGH ? WARPS : 1][HIGH ? STAGE : 1][HIGH ? HIGH : 16];
    u8 scales[WARPS][STAGE][SCALES];
};

struct Weights {
    const u8 *low, *high, *scales;
    const u16 *factors; // [feature tiles, groups / 8, 1 + MINS, 16]
    u32 offset;         // subtracted from every code, in each of four bytes
};

struct Activations {
    const u32 *codes; // [groups, tiles_room, 64]
    const Float2 *meta; // [groups, tiles_room * 8]: scale, scale * sum of codes
    const u32 *sums;  // the same, two 16-bit sums of 16 codes each
    u32 tiles_room;
};

// Copies `bytes` (a multiple of 16) by `count` threads.
DEVICE void copy(void *to, const void *from, u32 bytes, u32 index, u32 count) {
    for (u32 at = 16 * index; at < bytes; at += 16 * count) copy16((u8 *)to + at, (const u8 *)from + at);
}

// Codes of 16 features x 32 weights, as `mma` takes its first operand.
DEVICE void decode(u32 (&a)[4], const u8 *low, const u8 *high, u32 offset) {
    if (BITS == 8) {
        Quad q = ((const Quad *)low)[lane()];
        a[0] = q.x, a[1] = q.y, a[2] = q.z, a[3] = q.w;
        return;
    }
    Pair p = ((const Pair *)low)[lane()];
    a[0] = p.x & 0x0f0f0f0f, a[1] = p.x >> 4 & 0x0f0f0f0f;
    a[2] = p.y & 0x0f0f0f0f, a[3] = p.y >> 4 & 0x0f0f0f0f;
    if (BITS == 5) {
        u32 top = ((const u16 *)high)[lane()];
        UNROLL for (u32 i = 0; i < 4; i++) {
            // Four bits to the lowest bits of four bytes, then to bit 4.
            a[i] |= ((top >> 4 * i & 15) * 0x00204081 & 0x01010101) << 4;
        }
    }
    if (BITS == 6) {
        u32 top = ((const u32 *)high)[lane()];
        UNROLL for (u32 i = 0; i < 4; i++) a[i] |= (top >> 2 * i & 0x03030303) << 4;
    }
    if (!MINS) {
        // Bytes below 128: setting the top bit keeps the subtraction within its byte.
        UNROLL for (u32 i = 0; i < 4; i++) a[i] = ((a[i] | 0x80808080) - offset) ^ 0x80808080;
    }
}

// Scales or minima of a lane's two features; `at` counts rows of 16 among scales and minima.
DEVICE void factors(float (&out)[2], const u8 *scales, u32 at, bool unsigned_bytes, const u16 *d) {
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 feature = (lane() >> 2) + 8 * i;
        if (INTEGER) {
            u8 value = scales[at * 16 + feature];
            out[i] = half_to_float(d[feature]) * (unsigned_bytes ? (float)value : (float)(signed char)value);
        } else {
            out[i] = half_to_float(((const u16 *)scales)[at * 16 + feature]);
        }
    }
}

GLOBAL THREADS(128) void gemm_codes(Weights w, Activations x, Target to, u32 groups, u32 rows, u32 features) {
    SHARED u8 memory[2 * sizeof(Stage)];
    Stage *stage = (Stage *)memory;
    static_assert(sizeof(Stage) * 2 <= 48 * 1024, "fits the shared memory of every card");
    static_assert(sizeof(Stage) * 2 >= FEATURES * (ROWS + 1) * 4, "a tile of logits fits");

    u32 feature_tiles = (features + 15) / 16;
    // Warps past the last feature repeat its tile and store nothing.
    u32 tile = smaller(block_x() * WARPS + warp(), feature_tiles - 1);
    bool real = block_x() * WARPS + warp() < feature_tiles;
    u32 first_tile = block_y() * TILES;
    u32 tiles = smaller(TILES, (rows + 7) / 8 - first_tile);
    u64 first_group = (u64)tile * groups; // of this warp's weights

    auto load = [&](u32 start, Stage &s) {
        u32 count = smaller(STAGE, groups - start);
        for (u32 g = 0; g < count; g++) {
            u64 cell = (u64)(start + g) * x.tiles_room + first_tile;
            copy(s.codes[g], x.codes + cell * 64, tiles * 256, thread(), 128);
            copy(s.meta[g], x.meta + cell * 8, tiles * 64, thread(), 128);
            if (SUMS) copy(s.sums[g], x.sums + cell * 8, tiles * 32, thread(), 128);
        }
        u64 group = first_group + start;
        copy(s.low[warp()], w.low + group * LOW, count * LOW, lane(), 32);
        if (HIGH) copy(s.high[warp()], w.high + group * HIGH, count * HIGH, lane(), 32);
        copy(s.scales[warp()], w.scales + group * SCALES, count * SCALES, lane(), 32);
    };

    float sums[TILES][4];
    UNROLL for (u32 t = 0; t < TILES; t++) UNROLL for (u32 i = 0; i < 4; i++) sums[t][i] = 0.0f;
    u32 pair = lane() & 3; // columns 2 * pair and 2 * pair + 1 of every tile are this lane's

    load(0, stage[0]);
    commit();
    u32 which = 0;
    for (u32 start = 0; start < groups; start += STAGE) {
        if (start + STAGE < groups) load(start + STAGE, stage[which ^ 1]);
        commit();
        wait<1>();
        barrier();
        const Stage &s = stage[which];
        u32 count = smaller(STAGE, groups - start);
        for (u32 g = 0; g < count; g++) {
            u32 a[4];
            decode(a, s.low[warp()][g], HIGH ? s.high[HIGH ? warp() : 0][HIGH ? g : 0] : nullptr, w.offset);
            float scale[HALVES][2], min[HALVES][2];
            const u16 *d = w.factors + (first_group + start + g) / 8 * (FACTORS * 16);
            UNROLL for (u32 h = 0; h < HALVES; h++) {
                factors(scale[h], s.scales[warp()][g], h, false, d);
                if (MINS) factors(min[h], s.scales[warp()][g], HALVES + h, true, d + 16);
            }
            UNROLL for (u32 t = 0; t < TILES; t++) {
                if (t >= tiles) continue;
                Pair b = ((const Pair *)s.codes[g][t])[lane()];
                // scale and total of this lane's first column, then of its second
                Float4 m = *(const Float4 *)&s.meta[g][8 * t + 2 * pair];
                if (HALVES == 1) {
                    int c[4] = {0, 0, 0, 0};
                    mma_s8(c, a, b.x, b.y);
                    UNROLL for (u32 i = 0; i < 4; i++) {
                        sums[t][i] = fma((float)c[i] * scale[0][i / 2], i % 2 ? m.z : m.x, sums[t][i]);
                        if (MINS) sums[t][i] = fma(-min[0][i / 2], i % 2 ? m.w : m.y, sums[t][i]);
                    }
                } else {
                    UNROLL for (u32 h = 0; h < HALVES; h++) {
                        int c[4] = {0, 0, 0, 0};
                        mma_s8_short(c, a[2 * h], a[2 * h + 1], h ? b.y : b.x);
                        float total[2] = {0.0f, 0.0f};
                        if (SUMS) {
                            Pair both = *(const Pair *)&s.sums[SUMS ? g : 0][SUMS ? 8 * t + 2 * pair : 0];
                            total[0] = m.x * (float)(short)(both.x >> 16 * h);
                            total[1] = m.z * (float)(short)(both.y >> 16 * h);
                        }
                        UNROLL for (u32 i = 0; i < 4; i++) {
                            sums[t][i] = fma((float)c[i] * scale[h][i / 2], i % 2 ? m.z : m.x, sums[t][i]);
                            if (MINS) sums[t][i] = fma(-min[h][i / 2], total[i % 2], sums[t][i]);
                        }
                    }
                }
            }
        }
        barrier();
        which ^= 1;
    }

    // A lane's sums: features lane / 4 and that plus 8, rows 2 * pair and that plus 1.
    u32 first_row = first_tile * 8, feature = tile * 16 + (lane() >> 2);
    if (to.into != STATISTICS) {
        UNROLL for (u32 t = 0; t < TILES; t++) {
            if (t >= tiles) continue;
            UNROLL for (u32 i = 0; i < 4; i++) {
                u32 row = first_row + 8 * t + 2 * pair + i % 2, n = feature + i / 2 * 8;
                if (real && row < rows && n < features) store(to, row, n, features, sums[t][i]);
            }
        }
        return;
    }
    wait<0>();
    float *logits = (float *)memory;
    UNROLL for (u32 t = 0; t < TILES; t++) {
        if (t >= tiles) continue;
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 row = 8 * t + 2 * pair + i % 2, n = 16 * warp() + (lane() >> 2) + i / 2 * 8;
            logits[n * (ROWS + 1) + row] = sums[t][i];
        }
    }
    barrier();
    u32 row = first_row + thread();
    if (thread() < 8 * tiles && row < rows) {
        u32 first = block_x() * FEATURES;
        reduce_tile(to, logits + thread(), ROWS + 1, first, smaller(FEATURES, features - first), row, rows);
    }
}

// out[r] = weights of row tokens[r]: one thread per value.
GLOBAL THREADS(128) void embed_codes(Weights w, const u32 *tokens, float *out, u32 groups) {
    u32 k = block_x() * 128 + thread(), g = k / 32, row = tokens[block_y()];
    if (g >= groups) return;
    u64 group = (u64)(row / 16) * groups + g;
    u32 half = k / 16 % 2, quarter = k / 4 % 4, byte = k % 4, upper = row / 8 % 2; // of the tile's 16 features
    u32 owner = row % 8 * 4 + quarter, reg = 2 * half + upper;
    int code;
    if (BITS == 8) {
        code = (signed char)w.low[group * LOW + owner * 16 + reg * 4 + byte];
    } else {
        code = w.low[group * LOW + owner * 8 + half * 4 + byte] >> 4 * upper & 15;
        if (BITS == 5) code |= (((const u16 *)(w.high + group * HIGH))[owner] >> (4 * reg + byte) & 1) << 4;
        if (BITS == 6) code |= (w.high[group * HIGH + owner * 4 + byte] >> 2 * reg & 3) << 4;
        code -= (int)(w.offset & 255);
    }
    const u8 *scales = w.scales + group * SCALES;
    const u16 *d = w.factors + group / 8 * (FACTORS * 16);
    u32 h = HALVES == 2 ? half : 0, n = row % 16;
    float scale = INTEGER ? half_to_float(d[n]) * (float)(signed char)scales[h * 16 + n]
                          : half_to_float(((const u16 *)scales)[h * 16 + n]);
    float value = scale * (float)code;
    if (MINS) {
        u32 at = (HALVES + h) * 16 + n;
        value -= INTEGER ? half_to_float(d[16 + n]) * (float)scales[at] : half_to_float(((const u16 *)scales)[at]);
    }
    out[(u64)block_y() * groups * 32 + k] = value;
}

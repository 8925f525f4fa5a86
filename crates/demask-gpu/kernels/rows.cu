// Operations on rows of activations: norm, gate and quantisation, rotation, keys and values, selection, and the last
// step of row statistics.
//
// An operand is three things: f32 values `[rows, width]`; int8 codes in the order in which the lanes of `mma` take
// their second operand, `[groups, tiles, 32 lanes, 2 halves, 4]` for tiles of 8 rows and groups of 32 values; and per
// group and row a scale, the scale times the sum of the codes, and the sums of both halves. Rows past the last one
// of a tile are zero.
#include "statistics.h"

struct Operand {
    float *values; // [rows, width]
    u32 *codes;    // [groups, tiles_room, 64]
    Float2 *meta;  // [groups, tiles_room * 8]
    u32 *sums;     // [groups, tiles_room * 8]
    u32 tiles_room;
    u32 width;
};

// Sum over 16 lanes, halves first, as the CPU adds its lanes; the result is that of the lowest lane.
DEVICE float sum16(float v) {
    v += shuffle_xor(v, 8);
    v += shuffle_xor(v, 4);
    v += shuffle_xor(v, 2);
    v += shuffle_xor(v, 1);
    return shuffle(v, 0);
}

// Quantises a group of 32 values, one per lane: the codes and the scale of least squared error among two steps,
// operation for operation as on the CPU (demask-compute, operand.rs).
DEVICE void quantize_group(const Operand &out, u32 row, u32 group, float value) {
    u32 magnitude = bits(value) & 0x7fffffff;
    UNROLL for (u32 m = 16; m > 0; m /= 2) {
        u32 other = shuffle_xor(magnitude, m);
        magnitude = other > magnitude ? other : magnitude;
    }
    float greatest = from_bits(magnitude);
    const float peaks[2] = {127.0f, 124.0f};
    float inverse[2] = {peaks[0] / greatest, peaks[1] / greatest};
    if (!((bits(inverse[0]) & 0x7fffffff) < 0x7f800000)) inverse[0] = inverse[1] = 0.0f;
    float upper = shuffle_xor(value, 16);
    float product[2], square[2], explained[2];
    UNROLL for (u32 i = 0; i < 2; i++) {
        float step = fma(value, inverse[i], MAGIC) - MAGIC, upper_step = fma(upper, inverse[i], MAGIC) - MAGIC;
        float p = fma(value * inverse[i], step, 0.0f), s = fma(step, step, 0.0f);
        product[i] = sum16(fma(upper * inverse[i], upper_step, p));
        square[i] = sum16(fma(upper_step, upper_step, s));
        explained[i] = product[i] * product[i] / (square[i] * (peaks[i] * peaks[i]));
    }
    u32 best = explained[1] > explained[0];
    float step = fma(value, best ? inverse[1] : inverse[0], MAGIC) - MAGIC;
    int code = nearest(step);
    float p = best ? product[1] : product[0], s = best ? square[1] : square[0];
    float scale = s > 0.0f ? p / s * (greatest / (best ? peaks[1] : peaks[0])) : 0.0f;
    if (magnitude >= 0x7f800000) scale = from_bits(0x7fc00000);

    int sum = code; // of this lane's half
    UNROLL for (u32 m = 8; m > 0; m /= 2) sum += (int)shuffle_xor((u32)sum, m);
    int other = (int)shuffle_xor((u32)sum, 16);
    u32 word = (u32)(code & 255) << 8 * (lane() & 3);
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    u64 cell = (u64)group * out.tiles_room + row / 8;
    if (lane() % 4 == 0) out.codes[cell * 64 + (row % 8 * 4 + lane() % 16 / 4) * 2 + lane() / 16] = word;
    if (lane() == 0) {
        u64 at = cell * 8 + row % 8;
        out.meta[at] = {scale, scale * (float)(sum + other)};
        out.sums[at] = (u32)(sum & 0xffff) | (u32)other << 16;
    }
}

// out = x / sqrt(mean(x^2) + eps) * weight, quantised. One block per row, the rows of the last tile included.
GLOBAL THREADS(256) void rms_norm(const float *x, const float *weight, float eps, u32 rows, Operand out) {
    SHARED double parts[8];
    u32 row = block_x(), width = out.width;
    const float *in = x + (u64)row * width;
    bool real = row < rows;
    double square = 0.0;
    for (u32 k = thread(); real && k < width; k += 256) {
        double value = in[k];
        square = __builtin_fma(value, value, square);
    }
    UNROLL for (u32 m = 16; m > 0; m /= 2) square += shuffle_xor(square, m);
    if (lane() == 0) parts[warp()] = square;
    barrier();
    square = 0.0;
    for (u32 i = 0; i < 8; i++) square += parts[i];
    float scale = (float)(1.0 / __builtin_sqrt(square / (double)width + (double)eps));
    for (u32 group = warp(); group * 32 < width; group += 8) {
        u32 k = group * 32 + lane();
        float value = 0.0f;
        if (real && k < width) {
            value = in[k] * scale * weight[k];
            out.values[(u64)row * width + k] = value;
        }
        quantize_group(out, row, group, value);
    }
}

// out = gate / (1 + e^-gate) * up, quantised. A warp per group and row.
GLOBAL THREADS(128) void silu_mul(const float *gate, const float *up, u32 rows, Operand out) {
    u32 row = block_y(), group = block_x() * 4 + warp(), k = group * 32 + lane();
    if (group * 32 >= out.width) return;
    float value = 0.0f;
    if (row < rows && k < out.width) {
        u64 at = (u64)row * out.width + k;
        float g = gate[at];
        value = g / (1.0f + exp_exact(-g)) * up[at];
        out.values[at] = value;
    }
    quantize_group(out, row, group, value);
}

// Quantises x, which may be the operand's own values.
GLOBAL THREADS(128) void quantize(const float *x, u32 rows, Operand out) {
    u32 row = block_y(), group = block_x() * 4 + warp(), k = group * 32 + lane();
    if (group * 32 >= out.width) return;
    float value = 0.0f;
    if (row < rows && k < out.width) {
        u64 at = (u64)row * out.width + k;
        value = x[at];
        if (out.values != x) out.values[at] = value;
    }
    quantize_group(out, row, group, value);
}

// Rotates all heads of row r for positions[r]; turns are (cos, sin) `[positions, dim / 2]`. A thread per pair.
GLOBAL THREADS(128) void rope(float *x, const u32 *positions, const Float2 *turns, u32 width, u32 dim, u32 half_split) {
    u32 index = block_x() * 128 + thread(), pairs = dim / 2;
    if (index >= width / 2) return;
    u32 head = index / pairs, pair = index % pairs;
    float *at = x + (u64)block_y() * width + head * dim + (half_split ? pair : 2 * pair);
    u32 distance = half_split ? pairs : 1;
    Float2 turn = turns[(u64)positions[block_y()] * pairs + pair];
    float a = at[0], b = at[distance];
    at[0] = a * turn.x - b * turn.y;
    at[distance] = b * turn.x + a * turn.y;
}

// Writes the keys and values of row r at positions[r] of a layer, in f16: `[kv heads, room, dim_room]`, whose columns
// past `dim` stay zero.
GLOBAL THREADS(128) void kv_write(const float *k, const float *v, const u32 *positions, u16 *keys, u16 *values,
                                  u32 width, u32 dim, u32 room, u32 dim_room) {
    u32 i = block_x() * 128 + thread();
    if (i >= width) return;
    u64 from = (u64)block_y() * width + i, to = ((u64)(i / dim) * room + positions[block_y()]) * dim_room + i % dim;
    keys[to] = float_to_half(k[from]);
    values[to] = float_to_half(v[from]);
}

// Keeps the rows at `indices` (ascending, so that a row moves up or stays), in place: a block of 32 x 32 threads takes
// 32 columns of 32 rows at a time, and what it overwrites is never read later.
GLOBAL THREADS(1024) void select(float *x, const u32 *indices, u32 count, u32 width) {
    u32 column = block_x() * 32 + lane();
    for (u32 start = 0; start < count; start += 32) {
        u32 row = start + warp();
        bool real = row < count && column < width;
        float value = real ? x[(u64)indices[row] * width + column] : 0.0f;
        barrier();
        if (real) x[(u64)row * width + column] = value;
    }
}

// A row's statistics, whole. The host takes the logarithms.
struct alignas(16) Whole {
    double total, weighted;
    float greatest;
    u32 best;
    float best_logit, second_logit;
    u32 finite, unused;
};

struct Running {
    double total, weighted;
    float greatest, best_logit, second_logit;
    u32 best, finite;
};

// Takes the statistics of other tokens. Among equal logits the lowest token is best, in whatever order they come.
DEVICE void merge(Running &into, Running from) {
    float greatest = from.greatest > into.greatest ? from.greatest : into.greatest;
    Running *both[2] = {&into, &from};
    UNROLL for (u32 i = 0; i < 2; i++) {
        float shift = both[i]->greatest - greatest;
        if (shift < 0.0f && both[i]->total > 0.0) {
            double factor = (double)exp_exact(shift);
            both[i]->weighted = (both[i]->weighted + (double)shift * both[i]->total) * factor;
            both[i]->total *= factor;
        }
    }
    into.greatest = greatest;
    into.total += from.total;
    into.weighted += from.weighted;
    into.finite &= from.finite;
    bool better = from.best != ALL && (into.best == ALL || from.best_logit > into.best_logit ||
                                       (from.best_logit == into.best_logit && from.best < into.best));
    float loser = better ? into.best_logit : from.best_logit;
    float second = into.second_logit > from.second_logit ? into.second_logit : from.second_logit;
    into.second_logit = loser > second ? loser : second;
    if (better) into.best = from.best, into.best_logit = from.best_logit;
}

DEVICE Running shuffle_xor(const Running &r, u32 m) {
    return {shuffle_xor(r.total, m),        shuffle_xor(r.weighted, m),     shuffle_xor(r.greatest, m),
            shuffle_xor(r.best_logit, m),   shuffle_xor(r.second_logit, m), shuffle_xor(r.best, m),
            shuffle_xor(r.finite, m)};
}

// Merges the partial statistics `[tiles, rows]` of each row: a warp per row.
GLOBAL THREADS(32) void merge_statistics(const Partial *partials, Whole *out, u32 tiles, u32 rows) {
    u32 row = block_x();
    Running all = {0.0, 0.0, minus_infinity(), minus_infinity(), minus_infinity(), ALL, 1};
    for (u32 tile = lane(); tile < tiles; tile += 32) {
        Partial p = partials[(u64)tile * rows + row];
        merge(all, {p.total, p.weighted, p.greatest, p.best_logit, p.second_logit, p.best, p.finite});
    }
    UNROLL for (u32 m = 16; m > 0; m /= 2) merge(all, shuffle_xor(all, m));
    if (lane() == 0) {
        out[row] = {all.total, all.weighted, all.greatest, all.best, all.best_logit, all.second_logit, all.finite, 0};
    }
}

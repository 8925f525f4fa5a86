// Draws tokens from rows of logits, with the random numbers and by the rules of the CPU (demask: random.rs, sampler.rs):
// a block per draw, all sums in f64. The mask token is never drawn but keeps its share of the probabilities.
//
// The sums of a row are added in another order than on the CPU, and logarithms may differ from its in the last place: a
// token differs where two candidates are that close, which is once in many billion draws.
#include "prim.h"

const u32 WARPS = 8;
const u32 NONE = ALL; // no token

// What the host makes probabilities of. Sums are relative to the greatest logit.
struct alignas(16) Draw {
    double total, weighted;             // of the plain softmax: sums of e^d and of d e^d
    double warm_total, warm_weighted;   // of the softmax at the temperature, for the categorical rule
    float greatest, best, second;       // logits: of all tokens; the two best ones without the mask token
    float drawn;                        // that of the token
    u32 token, finite;
    u32 unused[2];
};

DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE u64 bits(double v) { return __builtin_bit_cast(u64, v); }
DEVICE double double_from_bits(u64 v) { return __builtin_bit_cast(double, v); }
DEVICE double shuffle(double v, u32 from) {
    u32 low = bits(shuffle(from_bits((u32)bits(v)), from)), high = bits(shuffle(from_bits((u32)(bits(v) >> 32)), from));
    return double_from_bits((u64)low | (u64)high << 32);
}

// ln 2 in two parts, the first with zeros at its end: its products with small integers are exact.
const double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;

// The natural logarithm of a number that isn't denormal, to about one unit in the last place; of zero, minus infinity.
DEVICE double ln(double v) {
    if (!(v > 0.0)) return double_from_bits(0xfff0000000000000ull);
    int exponent = (int)(bits(v) >> 52) - 1023;
    double m = double_from_bits((bits(v) & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) m *= 0.5, exponent++;
    // ln(1 + f) = 2 atanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...) for s = f / (2 + f), and 2 s = f - s f.
    double f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double p = 2.0 / 23.0;
    UNROLL for (int k = 21; k >= 3; k -= 2) p = fma(p, z, 2.0 / k);
    double e = (double)exponent;
    return fma(e, LN2_HIGH, f - (s * (f - p * z) - e * LN2_LOW));
}

// e^v for v up to 0, to about one unit in the last place; 0 where the result would be denormal.
DEVICE double exp_double(double v) {
    if (v < -708.0) return 0.0;
    const double magic = 6755399441055744.0; // 1.5 * 2^52: adding it rounds to an integer
    double shifted = fma(v, 1.4426950408889634, magic), n = shifted - magic;
    double r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, v));
    const double factors[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                              1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                              1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        1.0 / 2.0};
    double p = factors[0];
    UNROLL for (u32 i = 1; i < 12; i++) p = fma(p, r, factors[i]);
    return (1.0 + fma(p, r * r, r)) * double_from_bits((bits(shifted) << 52) + (1023ull << 52));
}

// Philox4x32-10 at counter (block, step, position, 0): two uniform numbers in (0, 1).
DEVICE void uniforms(double (&out)[2], u32 block, u32 step, u32 position, u32 key0, u32 key1) {
    u32 c[4] = {block, step, position, 0};
    UNROLL for (u32 round = 0; round < 10; round++) {
        u64 a = (u64)0xD2511F53u * c[0], b = (u64)0xCD9E8D57u * c[2];
        c[0] = (u32)(b >> 32) ^ c[1] ^ key0, c[1] = (u32)b;
        c[2] = (u32)(a >> 32) ^ c[3] ^ key1, c[3] = (u32)a;
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    UNROLL for (u32 i = 0; i < 2; i++) {
        u64 draw = (u64)c[2 * i] | (u64)c[2 * i + 1] << 32;
        out[i] = ((double)(draw >> 11) + 0.5) * 0x1p-53;
    }
}

// What is known of some tokens of a row.
struct Part {
    double total, weighted, warm_total, warm_weighted;
    double open;  // the part of warm_total that can be drawn
    double noisy; // the greatest logit with noise
    float best, second;
    u32 best_token, token;
};

// Takes other tokens. Among equals the lowest token is best, in whatever order they come.
DEVICE void merge(Part &into, const Part &from) {
    into.total += from.total, into.weighted += from.weighted;
    into.warm_total += from.warm_total, into.warm_weighted += from.warm_weighted;
    into.open += from.open;
    if (from.noisy > into.noisy || (from.noisy == into.noisy && from.token < into.token)) {
        into.noisy = from.noisy, into.token = from.token;
    }
    bool better = from.best > into.best || (from.best == into.best && from.best_token < into.best_token);
    float loser = better ? into.best : from.best;
    float second = into.second > from.second ? into.second : from.second;
    into.second = loser > second ? loser : second;
    if (better) into.best = from.best, into.best_token = from.best_token;
}

DEVICE Part shuffle_xor(const Part &p, u32 m) {
    return {shuffle_xor(p.total, m),         shuffle_xor(p.weighted, m), shuffle_xor(p.warm_total, m),
            shuffle_xor(p.warm_weighted, m), shuffle_xor(p.open, m),     shuffle_xor(p.noisy, m),
            shuffle_xor(p.best, m),          shuffle_xor(p.second, m),   shuffle_xor(p.best_token, m),
            shuffle_xor(p.token, m)};
}

// `words` are the seed's halves, the step, the mask token, then a row of `logits` and a canvas position per draw. Gumbel
// rule: the greatest l - T ln(-ln U). Categorical rule: where the running sum of e^(l / T) passes U times its total.
GLOBAL THREADS(256) void sample(const float *logits, const u32 *words, Draw *out, double temperature, u32 categorical,
                                u32 vocab) {
    SHARED float tops[WARPS];
    SHARED u32 bad[WARPS];
    SHARED Part parts[WARPS];
    SHARED u32 found;
    u32 key0 = words[0], key1 = words[1], step = words[2], mask = words[3];
    u32 position = words[5 + 2 * block_x()];
    const float *in = logits + (u64)words[4 + 2 * block_x()] * vocab;

    float greatest = minus_infinity(), poison = 0.0f;
    for (u32 t = thread(); t < vocab; t += 256) {
        float logit = in[t];
        greatest = logit > greatest ? logit : greatest;
        poison += logit * 0.0f; // NaN unless finite
    }
    u32 broken = poison != 0.0f;
    UNROLL for (u32 m = 16; m > 0; m /= 2) {
        float other = shuffle_xor(greatest, m);
        greatest = other > greatest ? other : greatest;
        broken |= shuffle_xor(broken, m);
    }
    if (lane() == 0) tops[warp()] = greatest, bad[warp()] = broken;
    if (thread() == 0) found = NONE;
    barrier();
    broken = 0;
    for (u32 w = 0; w < WARPS; w++) greatest = tops[w] > greatest ? tops[w] : greatest, broken |= bad[w];

    // Each warp takes a part of the row, a lane two neighbouring tokens at a time: they share a call of the generator.
    u32 pairs = (vocab + 1) / 2, share = (pairs + WARPS * 32 - 1) / (WARPS * 32) * 32;
    u32 first = smaller(warp() * share, pairs), end = smaller(first + share, pairs);
    double top = (double)greatest, warm_top = top / temperature;
    auto warm = [&](u32 token) { return exp_double((double)in[token] / temperature - warm_top); };

    Part part = {0.0, 0.0, 0.0, 0.0, 0.0, minus_infinity(), minus_infinity(), minus_infinity(), NONE, NONE};
    for (u32 pair = first + lane(); pair < end; pair += 32) {
        double uniform[2] = {0.5, 0.5};
        if (!categorical) uniforms(uniform, pair, step, position, key0, key1);
        UNROLL for (u32 i = 0; i < 2; i++) {
            u32 token = 2 * pair + i;
            if (token >= vocab) continue;
            float logit = in[token];
            double value = (double)logit, distance = value - top, weight = exp_double(distance);
            part.total += weight;
            part.weighted = fma(distance, weight, part.weighted);
            if (categorical) {
                double distance = value / temperature - warm_top, weight = exp_double(distance);
                part.warm_total += weight;
                if (weight > 0.0) part.warm_weighted = fma(distance, weight, part.warm_weighted);
                if (token != mask) part.open += weight;
            }
            if (token == mask) continue;
            if (!categorical) {
                double noisy = value - temperature * ln(-ln(uniform[i]));
                if (noisy > part.noisy) part.noisy = noisy, part.token = token;
            }
            if (logit > part.best) {
                part.second = part.best;
                part.best = logit, part.best_token = token;
            } else if (logit > part.second) {
                part.second = logit;
            }
        }
    }
    UNROLL for (u32 m = 16; m > 0; m /= 2) merge(part, shuffle_xor(part, m));
    if (lane() == 0) parts[warp()] = part;
    barrier();

    if (categorical) {
        double open = 0.0, uniform[2];
        for (u32 w = 0; w < WARPS; w++) open += parts[w].open;
        uniforms(uniform, 0, step, position, key0, key1);
        // The warp in whose part the sum passes the goal; the last one with anything if rounding lets none pass.
        double goal = uniform[0] * open, before = 0.0, sum = 0.0;
        u32 owner = WARPS;
        for (u32 w = 0; w < WARPS; w++) {
            if (parts[w].open > 0.0 && (owner == WARPS || !(before > goal))) owner = w, sum = before;
            before += parts[w].open;
        }
        if (owner == warp()) {
            u32 passing = NONE, last = 0; // last: one more than the last token with any weight
            for (u32 start = first; start < end && passing == NONE; start += 32) {
                u32 pair = start + lane();
                double weights[2] = {0.0, 0.0};
                UNROLL for (u32 i = 0; i < 2; i++) {
                    u32 token = 2 * pair + i;
                    if (pair < end && token < vocab && token != mask) weights[i] = warm(token);
                    if (weights[i] > 0.0) last = token + 1;
                }
                double upto = weights[0] + weights[1];
                UNROLL for (u32 d = 1; d < 32; d *= 2) {
                    double other = shuffle(upto, (lane() - d) & 31);
                    if (lane() >= d) upto += other;
                }
                double others = shuffle(upto, (lane() - 1) & 31), below = sum + (lane() ? others : 0.0);
                if (weights[0] > 0.0 && below + weights[0] > goal) {
                    passing = 2 * pair;
                } else if (weights[1] > 0.0 && sum + upto > goal) {
                    passing = 2 * pair + 1;
                }
                UNROLL for (u32 m = 16; m > 0; m /= 2) passing = smaller(passing, shuffle_xor(passing, m));
                sum += shuffle(upto, 31);
            }
            UNROLL for (u32 m = 16; m > 0; m /= 2) {
                u32 other = shuffle_xor(last, m);
                last = other > last ? other : last;
            }
            if (lane() == 0) found = passing != NONE ? passing : last - 1;
        }
        barrier();
    }
    if (thread() != 0) return;
    for (u32 w = 1; w < WARPS; w++) merge(part, parts[w]);
    // If nothing but the mask token has any weight, the best of the others is drawn.
    u32 token = !categorical ? part.token : found != NONE ? found : part.best_token;
    out[block_x()] = {part.total,  part.weighted, part.warm_total,           part.warm_weighted,
                      greatest,    part.best,     part.second,               token < vocab ? in[token] : 0.0f,
                      token,       !broken && token < vocab,                 {0, 0}};
}

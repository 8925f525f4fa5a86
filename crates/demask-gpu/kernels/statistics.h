// What is done with a tile of products: stored, added, or boiled down to row statistics, as its kernel is told.
#pragma once
#include "prim.h"

// What becomes of products; numbered as in the host's `Into`.
enum Into : u32 { OVERWRITE = 0, ADD = 1, STATISTICS = 2 };

// Statistics of a part of a row of logits. The sums are relative to the greatest logit.
struct alignas(16) Partial {
    float greatest; // of all logits, excluded tokens included
    float total;    // sum of e^(l - greatest)
    float weighted; // sum of (l - greatest) e^(l - greatest)
    u32 best;       // first best token that isn't excluded; ALL if none
    float best_logit;
    float second_logit;
    u32 finite;
    u32 unused;
};

// Where products go.
struct Target {
    float *out;          // [rows, features], for OVERWRITE and ADD
    const float *bias;   // [features] or null, for OVERWRITE
    Partial *partials;   // [feature tiles, rows], for STATISTICS
    const u32 *excluded; // tokens that are never best
    u32 excluded_count;
    u32 into;
};

DEVICE void store(const Target &to, u64 row, u32 feature, u32 features, float product) {
    float *cell = to.out + row * features + feature;
    if (to.into == ADD) {
        *cell += product;
    } else {
        *cell = to.bias ? product + to.bias[feature] : product;
    }
}

// Statistics of logits `[tokens, rows]` (features first, `stride` apart) of up to 64 consecutive tokens: one thread per
// row.
DEVICE void reduce_tile(const Target &to, const float *logits, u32 stride, u32 first, u32 tokens, u32 row, u32 rows) {
    u64 hidden = 0;
    for (u32 i = 0; i < to.excluded_count; i++) {
        u32 distance = to.excluded[i] - first;
        if (distance < 64) hidden |= (u64)1 << distance;
    }
    float greatest = minus_infinity();
    for (u32 t = 0; t < tokens; t++) {
        float logit = logits[t * stride];
        greatest = logit > greatest ? logit : greatest;
    }
    Partial p = {greatest, 0.0f, 0.0f, ALL, minus_infinity(), minus_infinity(), 1, 0};
    // f32 sums of eight, and of these in f64: the entropy of a sure row is a small difference.
    double all_total = 0.0, all_weighted = 0.0;
    float total = 0.0f, weighted = 0.0f, poison = 0.0f;
    for (u32 t = 0; t < tokens; t++) {
        float logit = logits[t * stride], distance = logit - greatest, weight = exp_exact(distance);
        total += weight;
        weighted = fma(distance, weight, weighted);
        poison += logit * 0.0f; // NaN unless finite
        if (t % 8 == 7 || t + 1 == tokens) {
            all_total += (double)total, all_weighted += (double)weighted;
            total = weighted = 0.0f;
        }
        if (hidden >> t & 1) continue;
        if (logit > p.best_logit || (p.best == ALL && logit == logit)) {
            p.second_logit = p.best_logit;
            p.best = first + t;
            p.best_logit = logit;
        } else if (logit > p.second_logit) {
            p.second_logit = logit;
        }
    }
    p.total = (float)all_total, p.weighted = (float)all_weighted;
    p.finite = poison == 0.0f;
    to.partials[(u64)block_x() * rows + row] = p;
}

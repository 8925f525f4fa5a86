// What compilers make of less tidy code: calls, local arrays, switches, 64-bit division, structures by value.
#include "prim.h"

__attribute__((device)) __attribute__((noinline)) float horner(float x, u32 degree) {
    float sum = 0;
    for (u32 i = 0; i < degree; i++) sum = sum * x + (float)(i + 1);
    return sum;
}

__attribute__((device)) __attribute__((noinline)) u64 collatz(u64 n) {
    u64 steps = 0;
    while (n > 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        steps += horner(0, 1) > 0;
    }
    return steps;
}

__attribute__((device)) const u32 table[7] = {3, 1, 4, 1, 5, 9, 2};
__attribute__((device)) u32 launches = 5;

struct Job {
    u8 kind;
    float factor;
    u64 divisor;
};

KERNEL void odds(const u32 *in, u32 *out, u32 length, Job job) {
    u32 i = block_x() * threads() + thread();
    if (i >= length) return;
    u32 value = in[i], history[8];
    for (u32 j = 0; j < 8; j++) history[(value + j * 3) & 7] = value * (j + 1);
    u32 result = history[i & 7];
    switch (value % 6) {
    case 0: result += table[value % 7]; break;
    case 1: result ^= (u32)(u64)(horner(job.factor, value % 5) * 16); break;
    case 2: result += (u32)collatz(value & 31); break;
    case 3: result += (u32)(((u64)value << 20 | i) / job.divisor); break;
    case 4: result += (u32)(((u64)value << 20 | i) % job.divisor); break;
    default: result = __builtin_popcount(result) + __builtin_clz(value | 1) + job.kind;
    }
    if (i == 0) launches++;
    out[i] = result + (i == 0 ? launches : 0);
}

// What the kernels are written in: a dialect of CUDA C++ small enough that clang compiles it without any SDK. Nothing
// here rounds in a way of its own: products are fused only where `fma` stands, so that results can be compared bit
// for bit with the CPU's.
#pragma once

#define GLOBAL extern "C" __attribute__((global))
#define DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define SHARED __attribute__((shared)) __attribute__((aligned(16)))
#define THREADS(n) __attribute__((launch_bounds(n)))
#define UNROLL _Pragma("unroll")

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(8) Pair { u32 x, y; };
struct alignas(8) Float2 { float x, y; };
struct alignas(16) Quad { u32 x, y, z, w; };
struct alignas(16) Float4 { float x, y, z, w; };

const u32 ALL = 0xffffffffu;

DEVICE u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 lane() { return thread() & 31; }
DEVICE u32 warp() { return thread() >> 5; }
DEVICE void barrier() { __syncthreads(); }

DEVICE u32 shuffle_xor(u32 v, u32 mask) { return __nvvm_shfl_sync_bfly_i32(ALL, v, mask, 31); }
DEVICE float shuffle_xor(float v, u32 mask) { return __nvvm_shfl_sync_bfly_f32(ALL, v, mask, 31); }
DEVICE float shuffle(float v, u32 from) { return __nvvm_shfl_sync_idx_f32(ALL, v, from, 31); }
DEVICE double shuffle_xor(double v, u32 mask) {
    u64 bits = __builtin_bit_cast(u64, v);
    u32 low = shuffle_xor((u32)bits, mask), high = shuffle_xor((u32)(bits >> 32), mask);
    return __builtin_bit_cast(double, (u64)low | (u64)high << 32);
}

DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE u32 bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE float from_bits(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE float half_to_float(u16 v) { return (float)__builtin_bit_cast(_Float16, v); }
DEVICE u16 float_to_half(float v) { return __builtin_bit_cast(u16, (_Float16)v); }
DEVICE float minus_infinity() { return from_bits(0xff800000u); }

// Two floats as f16, the first in the low half.
DEVICE u32 pack_halves(float low, float high) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

// The nearest integer, ties to even; 0 for what isn't a number.
DEVICE int nearest(float v) {
    int d;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(d) : "f"(v));
    return d;
}

// 2^v, to about 2 units in the last place.
DEVICE float exp2_fast(float v) {
    float d;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(v));
    return d;
}

DEVICE u32 shared_address(const void *p) { return (u32)(u64)(__attribute__((address_space(3))) const void *)p; }

// Copies 16 bytes from global to shared memory, without waiting.
DEVICE void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// The same, or 16 zero bytes.
DEVICE void copy16_or_zero(void *to, const void *from, bool copy) {
    u32 bytes = copy ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

// Closes a group of copies.
DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `N` groups of this thread are under way.
template <int N> DEVICE void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// c[16, 8] += a[16, 32] * b[32, 8] of int8.
DEVICE void mma_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c[16, 8] += a[16, 16] * b[16, 8] of int8.
DEVICE void mma_s8_short(int (&c)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// c[16, 8] += a[16, 16] * b[16, 8] of f16, sums in f32.
DEVICE void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 rows of 16 bytes: lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void load_matrices(u32 (&d)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same, each transposed.
DEVICE void load_matrices_transposed(u32 (&d)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared_address(row))
                 : "memory");
}

const float MAGIC = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer

// e^v, operation for operation as on the CPU (demask-compute, rowwise.rs).
DEVICE float exp_exact(float v) {
    float clamped = v < -87.0f ? -87.0f : v > 88.0f ? 88.0f : v;
    float shifted = fma(clamped, 1.44269504088896340736f, MAGIC);
    float n = shifted - MAGIC;
    float r = fma(n, 2.1219444e-4f, fma(n, -0.6933594f, clamped));
    float p = fma(fma(fma(fma(fma(1.9875691e-4f, r, 1.3982e-3f), r, 8.333452e-3f), r, 4.1665796e-2f), r, 0.16666666f), r, 0.5f);
    float value = fma(p, r * r, r) + 1.0f;
    float power = from_bits((bits(shifted) << 23) + (127u << 23));
    return v < -87.0f ? 0.0f : value * power;
}

DEVICE u32 smaller(u32 a, u32 b) { return a < b ? a : b; }

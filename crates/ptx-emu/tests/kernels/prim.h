// The dialect of CUDA C++ of these kernels: clang compiles it to PTX without any SDK.
#pragma once

#define KERNEL extern "C" __attribute__((global))
#define DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define SHARED __attribute__((shared)) __attribute__((aligned(16)))
#define UNROLL _Pragma("unroll")

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(16) Quad { u32 x, y, z, w; };
struct alignas(16) Float4 { float x, y, z, w; };

DEVICE u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE void barrier() { __syncthreads(); }
DEVICE void sync_warp() { asm volatile("bar.warp.sync -1;" ::: "memory"); }
DEVICE void fence() { asm volatile("membar.gl;" ::: "memory"); }
DEVICE u32 shared_address(const void *p) { return (u32)(u64)(__attribute__((address_space(3))) const void *)p; }
DEVICE u32 bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE float from_bits(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE u32 min32(u32 a, u32 b) { return a < b ? a : b; }
DEVICE float exp2_fast(float v) { return __nvvm_ex2_approx_f(v); }
DEVICE float shuffle_xor(float v, int by) { return __nvvm_shfl_sync_bfly_f32(-1, v, by, 31); }
DEVICE u32 shuffle_xor(u32 v, int by) { return __nvvm_shfl_sync_bfly_i32(-1, v, by, 31); }

template <int BYTES> DEVICE void copy(void *to, const void *from, u32 real = BYTES) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(real) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES), "r"(real) : "memory");
}
DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

DEVICE void mma_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void load_matrices(u32 (&d)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_transposed(u32 (&d)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1]) : "r"(shared_address(row)) : "memory");
}

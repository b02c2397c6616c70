/* SIMD_CLONES before a function makes the compiler build it for newer processors too, and the dynamic linker choose
 * when the module is loaded. It works for plain loops over arrays. Where the toolchain cannot do it (other compilers,
 * musl, sanitizers, whose runtime is not up when the choice is made) the function is built once, for the base
 * processor.
 *
 * SIMD_WIDEST, where it is defined, builds a function with vectors of 64 bytes, for processors that have avx512f.
 *
 * ALWAYS_INLINE is for bodies of loops that are written once and compiled for several constant arguments. */
#ifndef SHMJET_SIMD_H
#define SHMJET_SIMD_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#define SIMD_WIDEST __attribute__((target("avx512f")))
#else
#define SIMD_CLONES
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#endif

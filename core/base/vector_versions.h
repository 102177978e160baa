// A mark for functions whose loops are written for vectorization.
#pragma once

// Debian's compiler may use only what every x86-64 has; most have vectors of twice the length,
// which can also select and take minima. Sanitizers cannot run the code that picks a version. GCC
// vectorizes such loops only if told to.
#if !defined(__GNUC__) || defined(__clang__)
#define REWIND_VECTOR_VERSIONS
#elif defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REWIND_VECTOR_VERSIONS __attribute__((optimize("O3"), target_clones("avx2", "default")))
#else
#define REWIND_VECTOR_VERSIONS __attribute__((optimize("O3")))
#endif

// Work sharing of the cpu backend: one loop over independent pieces of work. What a piece is
// depends on sizes alone, never on the number of threads, and so neither do the bits.
#pragma once

#include <cstdint>

namespace rw::cpu {

// $OMP_NUM_THREADS, or else the cores of this process, of which the ranks of mpirun on this machine
// have the same number.
int default_threads();
// Threads that share work, the caller among them: so many at first.
int threads();
// How many there are from now on; tests compare the bits of several.
void set_threads(int count);

// The number, below threads(), of the thread that works on a piece: no two have one at a time.
int slot();

// body(context, i) for i in [0, count), begun in this order, by at most so many threads. Pieces run
// on the caller alone where there is one, where they come from within a piece, where other pieces
// are being shared out, and in a copy of the process (fork), which has no other threads.
void share_out(int64_t count, void (*body)(const void* context, int64_t i), const void* context,
               int most_threads = 1 << 30);

// body(i) for i in [0, count). It must not throw.
template <class Body>
void parallel_for(int64_t count, const Body& body, int most_threads = 1 << 30) {
  share_out(
      count, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body,
      most_threads);
}

}  // namespace rw::cpu

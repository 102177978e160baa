// Work sharing of the cpu backend: one loop over independent pieces of work. Pieces depend only on
// sizes, never on the number of threads, and so do the bits.
#pragma once

#include <cstdint>

namespace rw::cpu {

// Returns $OMP_NUM_THREADS, or else the cores of this process; ranks of mpirun on one machine have
// equal shares of its cores.
int default_threads();
// The number of threads that share work, including the caller; initially default_threads().
int threads();
// Sets that number; tests compare the bits of several numbers.
void set_threads(int count);

// The number, below threads(), of the thread that works on a piece. No two threads have the same at
// one time.
int slot();

// Calls body(context, i) for i in [0, count), begun in this order, by at most so many threads.
// Pieces run on the caller alone if there is only one, if a piece shares them out, while other
// pieces are being shared out, and in a copy of the process (fork), which has no other threads.
void share_out(int64_t count, void (*body)(const void* context, int64_t i), const void* context,
               int most_threads = 1 << 30);

// Calls body(i) for i in [0, count). It must not throw.
template <class Body>
void parallel_for(int64_t count, const Body& body, int most_threads = 1 << 30) {
  share_out(
      count, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body,
      most_threads);
}

}  // namespace rw::cpu

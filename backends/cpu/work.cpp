#include "backends/cpu/work.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "backends/cpu/stack.h"
#include "core/base/environment.h"

namespace rw::cpu {

namespace {

int positive_number(const char* name) {
  const std::string text = env_text(name);
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::max(number, 0);
}

// Returns the number of cores that this process may use. If mpirun started several ranks on this
// machine, they share its cores; the variables are Open MPI's and Hydra's.
int own_cores() {
  const int all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t own;  // most versions of glibc ignore this in hardware_concurrency()
  const int usable = sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : all;
  const int ranks = std::max(
      {1, positive_number("OMPI_COMM_WORLD_LOCAL_SIZE"), positive_number("MPI_LOCALNRANKS")});
  return std::clamp(all / ranks, 1, usable);
}

// Tells the core that this thread waits.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A job, which lies on the stack of the thread that shares it out.
struct Job {
  int64_t count, share;  // the number of pieces, and how many of them a thread takes at a time
  void (*body)(const void*, int64_t);
  const void* context;
  int most_threads;
  std::atomic<int64_t> next{0};

  void work() {
    for (int64_t first; (first = next.fetch_add(share, std::memory_order_relaxed)) < count;)
      for (int64_t i = first; i < std::min(count, first + share); ++i) body(context, i);
  }
};

// Moves this thread away from a core that another thread of the pool uses. The system leaves both
// there, taking turns, if the other cores were busy when this one woke. Moving takes as long as
// some kernels, so it happens at most once in 10 ms.
void leave(int core) {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point next{};
  if (core < 0 || core != sched_getcpu()) return;
  const Clock::time_point now = Clock::now();
  cpu_set_t all, others;
  if (now < next || sched_getaffinity(0, sizeof all, &all) != 0) return;
  others = all;
  CPU_CLR(static_cast<size_t>(core), &others);
  if (sched_setaffinity(0, sizeof others, &others) != 0) return;  // it may run nowhere else
  sched_setaffinity(0, sizeof all, &all);
  next = now + std::chrono::milliseconds(10);
}

thread_local bool is_working = false;  // this thread works on a piece
thread_local int own_slot = 0;
std::atomic<bool> is_copy{false};  // this process is a fork of one that had threads

// Threads that wait for jobs. They live as long as the process, since it is unknown who computes
// last.
class Pool {
 public:
  Pool() {
    pthread_atfork(nullptr, nullptr, [] { is_copy = true; });
    set_threads(default_threads());
  }

  int threads() const { return wanted_; }

  void set_threads(int count) {
    const std::lock_guard alone(sharing_);
    wanted_ = std::max(1, count);
    for (int index = made_ + 1; index < wanted_; ++index) {
      const auto thread = start_thread([this, index] { serve(index); });
      if (!thread) break;
      pthread_detach(*thread);
      made_ = index;
    }
  }

  void share_out(Job& job) {
    const std::unique_lock alone(sharing_, std::try_to_lock);
    if (!alone || wanted_ == 1) return job.work();
    core_.store(sched_getcpu(), std::memory_order_relaxed);
    job_.store(&job);
    jobs_.fetch_add(1);
    jobs_.notify_all();
    job.work();
    job_.store(nullptr);  // threads that wake from now on are too late
    for (int inside; (inside = inside_.load()) != 0;) wait_while(inside_, inside);
  }

 private:
  // Returns when the value has changed. Kernels follow each other within microseconds, and sleeping
  // takes longer than that. Meanwhile, others who want the core get it.
  template <class T>
  static void wait_while(const std::atomic<T>& value, T old) {
    constexpr int looks = 100, turns = 300;
    for (int turn = 0; turn < looks + turns; ++turn) {
      if (value.load() != old) return;
      turn < looks ? pause() : std::this_thread::yield();
    }
    value.wait(old);
  }

  void serve(int index) {
    is_working = true;
    own_slot = index;
    for (uint32_t seen = 0;;) {
      wait_while(jobs_, seen);
      seen = jobs_.load();
      leave(core_.load(std::memory_order_relaxed));
      // In this order: a job that is found here is not over before this thread has left it.
      inside_.fetch_add(1);
      Job* const job = job_.load();
      if (job && index < std::min<int>(wanted_, job->most_threads)) job->work();
      if (inside_.fetch_sub(1) == 1) inside_.notify_one();
    }
  }

  std::mutex sharing_;  // held by the thread that shares out
  std::atomic<Job*> job_{nullptr};
  std::atomic<uint32_t> jobs_{0};  // the number so far
  std::atomic<int> inside_{0};     // threads that work on the job, or look for it
  std::atomic<int> core_{-1};      // of the thread that shares out
  std::atomic<int> wanted_{1};
  int made_ = 0;
};

Pool& pool() {
  static Pool& only = *new Pool;
  return only;
}

}  // namespace

int default_threads() {
  const int wanted = positive_number("OMP_NUM_THREADS");
  return wanted > 0 ? wanted : own_cores();
}

int threads() {
  return pool().threads();
}

void set_threads(int count) {
  pool().set_threads(count);
}

int slot() {
  return own_slot;
}

void share_out(int64_t count, void (*body)(const void*, int64_t), const void* context,
               int most_threads) {
  if (count <= 0) return;
  if (count == 1 || is_working || is_copy) {
    for (int64_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  // Shares are small enough that a slow thread delays nobody.
  const int64_t share = std::max<int64_t>(1, count / (pool().threads() * int64_t{8}));
  Job job{count, share, body, context, most_threads};
  is_working = true;
  pool().share_out(job);
  is_working = false;
}

}  // namespace rw::cpu

// An allocator for objects of which every op makes some and frees some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

// A thread-local variable that is found without a call, even in a shared library. Such variables
// take room that the system keeps for libraries of a program's start; a library that is opened
// later, after many others, may find none left: it is compiled with REWIND_OPENED_LATE.
#if defined(REWIND_OPENED_LATE)
#define REWIND_QUICK_TLS
#else
#define REWIND_QUICK_TLS [[gnu::tls_model("initial-exec")]]
#endif

namespace rw {

// Keeps the memory that this thread has freed, up to a number of pieces, for the next ones of the
// same type and length, which is at most 4. The general heap takes ten times as many instructions.
template <class T>
class Recycled {
 public:
  using value_type = T;  // for std::allocator_traits

  Recycled() = default;
  template <class U>
  Recycled(const Recycled<U>&) {}  // as allocators convert

  T* allocate(size_t count) {  // memory for `count` objects
    const bool is_kept = count - 1 < longest && free_[count - 1].first;
    return is_kept ? take(count) : std::allocator<T>().allocate(count);
  }
  void deallocate(T* objects, size_t count) noexcept {  // gives it back
    if (count - 1 >= longest || free_[count - 1].count >= free_[count - 1].most)
      return std::allocator<T>().deallocate(objects, count);
    Free& free = free_[count - 1];
    if (!free.first) free_at_end_of_thread();
    free.first = new (objects) void*(free.first);
    ++free.count;
  }
  bool operator==(const Recycled&) const { return true; }  // each frees what another allocated

 private:
  static constexpr size_t longest = 4;
  // The pieces of one length.
  struct Free {
    void** first = nullptr;  // each holds the address of the next one
    uint32_t count = 0;
#if defined(__SANITIZE_ADDRESS__)
    uint32_t most = 0;  // the sanitizer is to see what reads a freed object
#else
    uint32_t most = 1024;
#endif
  };
  static_assert(sizeof(T) >= sizeof(void*));

  static T* take(size_t count) {
    Free& free = free_[count - 1];
    void** const piece = free.first;
    free.first = static_cast<void**>(*piece);
    --free.count;
    return static_cast<T*>(static_cast<void*>(piece));
  }

  // Thread-local objects that die later free theirs to the heap.
  static void free_at_end_of_thread() {
    struct End {
      ~End() {
        for (size_t count = 1; count <= longest; ++count) {
          free_[count - 1].most = 0;
          while (free_[count - 1].first) std::allocator<T>().deallocate(take(count), count);
        }
      }
    };
    thread_local const End end;
    static_cast<void>(end);
  }

  REWIND_QUICK_TLS static inline constinit thread_local Free free_[longest];
};

}  // namespace rw

// Tests what every op takes from its thread: the memory of freed objects, and a device's lock.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "core/base/owned_mutex.h"
#include "core/base/recycled.h"

namespace rw::test {

namespace {

struct Thing {
  uint64_t words[5];
};

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("recycled: what a thread frees it gets again, by length, last one first") {
  Recycled<Thing> heap;
  Thing *one = heap.allocate(1), *other = heap.allocate(1), *three = heap.allocate(3);
  heap.deallocate(one, 1);
  heap.deallocate(three, 3);
  heap.deallocate(other, 1);
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(heap.allocate(1) == other);
  CHECK(heap.allocate(1) == one);
  CHECK(heap.allocate(3) == three);
#else
  one = heap.allocate(1), other = heap.allocate(1), three = heap.allocate(3);
#endif
  Thing* fresh = heap.allocate(1);
  CHECK(fresh != one);
  CHECK(fresh != other);
  heap.deallocate(fresh, 1);
  heap.deallocate(one, 1);
  heap.deallocate(other, 1);
  heap.deallocate(three, 3);
  heap.deallocate(heap.allocate(9), 9);  // too long to be kept
}

TEST_CASE("recycled: another thread may free, and ends with nothing kept") {
  Recycled<Thing> heap;
  Thing* here = heap.allocate(2);
  std::thread([&] {
    heap.deallocate(here, 2);
#if !defined(__SANITIZE_ADDRESS__)
    CHECK(heap.allocate(2) == here);
    heap.deallocate(here, 2);
#endif
  }).join();  // a sanitizer of leaks sees what it would keep
}

TEST_CASE("owned mutex: its thread takes it again, others wait for the last unlock") {
  OwnedMutex mutex;
  std::atomic<int> step = 0;
  mutex.lock();
  mutex.lock();
  std::thread other([&] {
    ++step;
    const std::lock_guard lock(mutex);
    CHECK(step == 2);
  });
  while (step == 0) std::this_thread::yield();
  mutex.unlock();
  ++step;
  mutex.unlock();
  other.join();
}

TEST_CASE("owned mutex: threads exclude each other") {
  OwnedMutex mutex;
  uint64_t count = 0;
  const auto add = [&] {
    for (int i = 0; i < 20000; ++i) {
      const std::lock_guard outer(mutex), inner(mutex);
      ++count;
    }
  };
  std::thread other(add);
  add();
  other.join();
  CHECK(count == 40000);
}

TEST_SUITE_END();

}  // namespace rw::test

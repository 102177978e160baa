// A part of the program in a process of its own: how long it may take.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/files/child_process.h"

namespace rw::test {

namespace {

// Works until this process has used so many seconds of a core.
void work(double seconds) {
  const std::clock_t end = std::clock() + static_cast<std::clock_t>(seconds * CLOCKS_PER_SEC);
  while (std::clock() < end) {
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("child process: the time that it may take grows with what its lines took") {
  const auto run = [](double first, double second) {
    return run_in_child(
               [=](const Send& send) {
                 work(first);
                 send("first");
                 work(second);
               },
               [](auto&) {}, 0.5)
        .failure;
  };
  CHECK(run(0.3, 1.0).empty());  // more than half a second, less than eight times the first
  CHECK(run(0, 10) == "it did not end in 0.5 s");
  const ChildEnd steady = run_in_child(
      [](const Send& send) {
        for (int i = 0; i < 20; ++i) {
          work(0.05);
          send("one more");
        }
      },
      [](auto&) {}, 0.3);
  CHECK(steady.failure.empty());  // eight times any line's time are less than all lines took
}

TEST_CASE("child process: one that waits for a processor is not asleep") {
  // A stopped process is as near to that as a test can come.
  const auto run = [](const std::function<void(const Send&)>& body) {
    std::thread waker;
    const ChildEnd end = run_in_child(
        body,
        [&](const std::string& pid) {
          waker = std::thread([pid] {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            ::kill(std::stoi(pid), SIGCONT);
          });
        },
        60, 0.3);
    if (waker.joinable()) waker.join();
    return end;
  };
  const ChildEnd stopped = run([](const Send& send) {
    send(std::to_string(::getpid()));
    std::raise(SIGSTOP);
  });
  CHECK(stopped.failure.empty());
  CHECK(!stopped.is_hung);
  const ChildEnd sleeps = run([](const Send&) { ::pause(); });
  CHECK(sleeps.failure == "it slept for 0.3 s");
  CHECK(sleeps.is_hung);
}

TEST_CASE("child process: its lines arrive, and its end is told, whatever it was") {
  std::vector<std::string> lines;
  const auto run = [&](const std::function<void(const Send&)>& body) {
    lines.clear();
    return run_in_child(
               body, [&](const std::string& line) { lines.push_back(line); }, 60)
        .failure;
  };
  const std::string large(10'000, 'x');  // comes in pieces
  CHECK(run([&](const Send& send) {
          send("two\nlines");
          send(large);
        }).empty());
  CHECK(lines == std::vector<std::string>{"two lines", large});
  CHECK(run([](const Send&) { throw std::runtime_error("it failed\nthere"); }) ==
        "it failed there");
  CHECK(lines.empty());
  CHECK(run([](const Send& send) {
          send("one");
          ::_exit(0);
        }) == "it ended early");
  CHECK(run([](const Send&) { std::raise(SIGTERM); }) ==
        std::string("it ended with ") + strsignal(SIGTERM));
}

TEST_SUITE_END();

}  // namespace rw::test

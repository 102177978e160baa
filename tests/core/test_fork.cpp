// A copy of the process has none of the driver's threads, so everything that it may not use is an
// error in every function.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <functional>
#include <unistd.h>

#include "backends/open.h"
#include "core/base/error.h"
#include "core/memory/default_device.h"
#include "ops/ops.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using test::message_of;

namespace {

// Returns the result of `body` in a copy of this process. The copy ends by _exit(): at exit(), Mesa
// joins threads that a copy does not have. A copy that waits for such a thread is killed.
std::string in_copy(const std::function<std::string()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const std::string text = body();
    [[maybe_unused]] const auto n = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status == 0 ? text : text + " and status " + std::to_string(status);
}

}  // namespace

TEST_CASE("fork: a copy of the process is refused at every door of a Vulkan device") {
  const auto device = set_default_device(open_backend("vulkan"));
  Tensor x = full({8}, 2);
  CHECK(sum(x).item() == 16);
  const std::pair<const char*, std::function<void()>> doors[] = {
      {"kernel", [&] { sum(x); }},
      {"memory", [] { empty({1 << 24}); }},
      {"write", [&] { write_elements(x, 0, 1, std::vector<float>{1}.data()); }},
      {"read", [&] { x.to_vector(); }},
      {"copy", [&] { device->copy(*x.impl().storage, 0, *x.impl().storage, 16, 16); }},
      {"mark", [&] { device->mark(); }},
      {"host bytes", [&] { device->host_bytes(*x.impl().storage); }},
      {"wait", [&] { device->synchronize(); }},
      {"trace", [&] { device->start_trace(); }},
  };
  for (const auto& [door, use] : doors) {
    CAPTURE(door);
    const std::string said = in_copy([&] { return message_of<DeviceError>(use); });
    CHECK(said.find("must be used by the process that opened it") != std::string::npos);
    CHECK(said.find("fork()") != std::string::npos);
    CHECK(said.find("status") == std::string::npos);
  }
  CHECK(sum(x).item() == 16);
}

TEST_CASE("fork: a copy of the process lets go of a Vulkan device and computes on the cpu") {
  set_default_device(open_backend("vulkan"));
  Tensor x = full({8}, 2);
  CHECK(sum(x).item() == 16);
  const auto on_cpu = [&] {
    x = {};
    set_default_device(open_backend("reference"));
    return std::to_string(sum(full({8}, 3)).item());
  };
  CHECK(in_copy(on_cpu) == std::to_string(24.0f));
  CHECK(sum(x).item() == 16);
}

TEST_CASE("fork: a copy of the process goes on with tensors of the cpu" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const Tensor x = full({8}, 2);
  CHECK(in_copy([&] { return std::to_string(sum(x).item()); }) == std::to_string(16.0f));
}

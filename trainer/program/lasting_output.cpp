#include "trainer/program/lasting_output.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace rw {

namespace {

// A file that is opened later must not get the descriptor of a standard stream, or texts would be
// printed into it.
void open_standard_streams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) close(file);
}

void wait_until_writable(int file) {
  pollfd output = {.fd = file, .events = POLLOUT, .revents = 0};
  poll(&output, 1, -1);
}

int first_error = 0;
int texts = STDOUT_FILENO;  // the descriptor for texts that are printed

void write_or_drop(int file, const char* data, size_t size) {
  for (size_t done = 0; done < size && first_error == 0;) {
    const ssize_t written = write(file, data + done, size - done);
    if (written >= 0)
      done += static_cast<size_t>(written);
    else if (errno == EAGAIN)
      wait_until_writable(file);
    else if (errno != EINTR)
      first_error = errno;
  }
}

ssize_t write_text(void*, const char* data, size_t size) {
  write_or_drop(texts, data, size);
  return static_cast<ssize_t>(size);
}

}  // namespace

LastingOutput::LastingOutput() : before_(stdout) {
  open_standard_streams();
  signal(SIGPIPE, SIG_IGN);
  std::fflush(stdout);
  first_error = 0;
  std::FILE* const lasting = fopencookie(nullptr, "w", {.write = write_text});
  if (lasting == nullptr) return;
  setvbuf(lasting, nullptr, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
  stdout = lasting;  // in glibc, the streams are variables
}

int LastingOutput::finish() {
  std::fflush(stdout);
  stdout = before_;
  return first_error;
}

void begin_json_lines() {
  texts = STDERR_FILENO;
}

bool has_json_lines() {
  return texts != STDOUT_FILENO;
}

void print_json_line(const nlohmann::json& json) {
  const std::string line =
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  write_or_drop(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace rw

#include "trainer/program/lasting_output.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace rw {

namespace {

// A file that is opened later must not get the number of a standard stream: it would be printed to.
void open_standard_streams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) close(file);
}

void wait_until_writable() {
  pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  poll(&output, 1, -1);
}

int first_error = 0;

ssize_t write_or_drop(void*, const char* data, size_t size) {
  for (size_t done = 0; done < size && first_error == 0;) {
    const ssize_t written = write(STDOUT_FILENO, data + done, size - done);
    if (written >= 0)
      done += static_cast<size_t>(written);
    else if (errno == EAGAIN)
      wait_until_writable();
    else if (errno != EINTR)
      first_error = errno;
  }
  return static_cast<ssize_t>(size);
}

}  // namespace

LastingOutput::LastingOutput() : before_(stdout) {
  open_standard_streams();
  signal(SIGPIPE, SIG_IGN);
  std::fflush(stdout);
  first_error = 0;
  std::FILE* const lasting = fopencookie(nullptr, "w", {.write = write_or_drop});
  if (lasting == nullptr) return;
  setvbuf(lasting, nullptr, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
  stdout = lasting;  // glibc's streams are variables
}

int LastingOutput::finish() {
  std::fflush(stdout);
  stdout = before_;
  return first_error;
}

}  // namespace rw

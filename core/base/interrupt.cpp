#include "core/base/interrupt.h"

#include <atomic>
#include <iterator>
#include <signal.h>

namespace rw {

namespace {

constexpr int watched[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> received = 0;
std::atomic<bool> watching = false;
struct sigaction before[std::size(watched)];

// Two signals at the same moment may be in this function at once, on two threads.
void note(int number) {
  int none = 0;
  const bool second = !received.compare_exchange_strong(none, number);
  for (const int signal : watched) ::signal(signal, SIG_DFL);  // the next one ends the process
  if (second) raise(number);                                   // and so does this one
}

}  // namespace

InterruptScope::InterruptScope() {
  check(!watching.exchange(true), "interrupt",
        "there is one InterruptScope at a time, got another");
  received = 0;
  for (size_t i = 0; i < std::size(watched); ++i) {
    sigaction(watched[i], nullptr, &before[i]);
    if (before[i].sa_handler == SIG_IGN) continue;  // of nohup, and of background jobs
    struct sigaction action = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    // None of them may come while another one is handled.
    for (const int signal : watched) sigaddset(&action.sa_mask, signal);
    sigaction(watched[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < std::size(watched); ++i) sigaction(watched[i], &before[i], nullptr);
  watching = false;
}

int InterruptScope::signal() {
  return received;
}

}  // namespace rw

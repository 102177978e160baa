#include "dist/world/rank_watch.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <poll.h>
#include <random>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rw {

namespace {

// The id is the same for all processes under one kernel.
std::string machine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

struct Address {
  sockaddr_un socket = {};
  socklen_t size = 0;

  // The address is in no folder, so nothing is left of it.
  explicit Address(const std::string& name) {
    socket.sun_family = AF_UNIX;
    std::memcpy(socket.sun_path + 1, name.data(),
                std::min(name.size(), sizeof socket.sun_path - 1));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

int open_socket(int flags = 0) {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
}

}  // namespace

class RankWatch::Watcher {
 public:
  Watcher(Communicator& ranks, std::function<void(int)> died)
      : rank_(ranks.rank()),
        tells_(ranks.local_rank() <= 1),
        died_(std::move(died)),
        stop_(eventfd(0, EFD_CLOEXEC)) {
    const std::string name = ranks.local_rank() == 0 ? listen_here() : "";
    const std::vector<std::string> names = gather_texts(ranks, name),
                                   machines = gather_texts(ranks, machine());
    for (size_t r = 0; r < names.size() && ranks.local_rank() > 0; ++r)
      if (!names[r].empty() && machines[r] == machines[static_cast<size_t>(rank_)])
        connect_to(names[r]);
    if (stop_ >= 0) thread_ = std::thread([this] { run(); });
  }
  ~Watcher() {
    if (thread_.joinable() && eventfd_write(stop_, 1) == 0) thread_.join();
    for (const Peer& peer : peers_) close(peer.file);
    for (const int file : {listener_, stop_})
      if (file >= 0) close(file);
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  struct Peer {
    int file, rank;  // -1: it has not said which it is
  };

  // Empty if there are no sockets.
  std::string listen_here() {
    std::random_device random;
    const std::string name = fmt::format("rewind-ranks-{}-{:08x}", getpid(), random());
    const Address address(name);
    listener_ = open_socket(SOCK_NONBLOCK);
    const bool listens = listener_ >= 0 && bind(listener_, address.get(), address.size) == 0 &&
                         listen(listener_, SOMAXCONN) == 0;
    return listens ? name : "";
  }

  void connect_to(const std::string& name) {
    const Address address(name);
    const int file = open_socket();
    if (file >= 0 && connect(file, address.get(), address.size) == 0)
      greet(file);
    else if (file >= 0)
      close(file);
  }

  // Both sides say who they are: otherwise one could end before the other has seen it.
  void greet(int file) {
    send(file, &rank_, sizeof rank_, MSG_NOSIGNAL);
    peers_.push_back({file, -1});
  }

  void run() {
    for (;;) {
      std::vector<pollfd> files = {{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Peer& peer : peers_) files.push_back({peer.file, POLLIN, 0});
      if (poll(files.data(), files.size(), -1) < 0) continue;
      for (size_t i = 2; i < files.size(); ++i)
        if (files[i].revents != 0) hear(peers_[i - 2]);
      std::erase_if(peers_, [](const Peer& peer) { return peer.file < 0; });
      accept_all();
      if (files[0].revents != 0) break;
    }
    for (const Peer& peer : peers_) send(peer.file, "", 1, MSG_NOSIGNAL);  // a regular end
  }

  void accept_all() {
    for (int file = 0; listener_ >= 0 && file >= 0;) {
      file = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (file >= 0) greet(file);
    }
  }

  // A rank first says who it is, and later that it ends. If it is gone without the latter, it has
  // died.
  void hear(Peer& peer) {
    int said = 0;
    ssize_t size = 0;
    // Linux first reports, once, that the other end closed before it had read everything, and only
    // then returns what the other end has sent.
    do {
      size = recv(peer.file, &said, sizeof said, 0);
    } while (size < 0 && (errno == ECONNRESET || errno == EINTR));
    if (size == sizeof said) {
      peer.rank = said;
      return;
    }
    close(std::exchange(peer.file, -1));
    if (size > 0 || peer.rank < 0 || !tells_) return;
    tells_ = false;  // MPI ends the others next: they do not count as dead
    died_(peer.rank);
  }

  const int rank_;
  bool tells_;
  const std::function<void(int)> died_;
  const int stop_;
  int listener_ = -1;
  std::vector<Peer> peers_;
  std::thread thread_;
};

RankWatch::RankWatch(Communicator& ranks, std::function<void(int rank)> died) {
  if (ranks.size() > 1) watcher_ = std::make_unique<Watcher>(ranks, std::move(died));
}

RankWatch::~RankWatch() = default;

}  // namespace rw

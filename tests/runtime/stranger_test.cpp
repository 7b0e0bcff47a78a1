// Runs that strangers disturb, and runs whose ranks end or stop before they have started.

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
// Behind LibTorch's, which has a CHECK of its own.
#include <doctest/doctest.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>

#include "runtime/error.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/sockets.h"
#include "runtime/transport/transports.h"
#include "wire/secret.h"

using graphpipe::Descriptor;
using namespace graphpipe::runtime;
using graphpipe::Code;
using graphpipe::text;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNobody = 65534;
constexpr const char* kLocal = "127.0.0.1";
constexpr int32_t kMaxRanks = 3;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A process that the test starts and ends.
class Forked {
 public:
  explicit Forked(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      std::_Exit(body());
    } catch (const std::exception& error) {
      std::cout << "a forked process failed: " << error.what() << std::endl;
      std::_Exit(99);
    }
  }
  Forked(Forked&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Forked() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  /// -1 where a signal ended it, -2 where it still runs after so many seconds.
  int wait(double seconds) {
    const auto start = Clock::now();
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (seconds_since(start) > seconds) return -2;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

using RankBody = std::function<int(ControlPlane& control, int32_t rank)>;

/// What a rank of these tests ends with where the run ends with an error that says `part`.
constexpr int kSaidSo = 40;
int said(const RunError& error, const std::string& part) {
  if (std::string(error.what()).find(part) != std::string::npos) return kSaidSo;
  std::cout << "found: " << error.what() << "; expected: " << part << std::endl;
  return kSaidSo + 1;
}

/// Ranks that meet by TCP on loopback.
class Ranks {
 public:
  /// `first`: what happens before they start, while rank 0's port is open already. `started`: how many do start.
  Ranks(int32_t count, const RankBody& body, ControlTimes times = {},
        const std::function<void(int32_t port)>& first = {}, int32_t started = kMaxRanks) {
    int32_t port = 0;
    Descriptor listener = listen_at(kLocal, port);
    if (first) first(port);
    port_ = port;
    setenv(graphpipe::wire::kSecretVariable, "the secret of the runs of these tests", 1);
    for (int32_t rank = 0; rank < std::min(count, started); ++rank)
      processes_.emplace_back([&, rank] {
        Rendezvous rendezvous{.rank = rank, .world_size = count, .port = port, .times = times};
        if (rank == 0) rendezvous.listen_fd = listener.release();
        else listener = {};
        const auto control = join_run(rendezvous);
        const int code = body(*control, rank);
        control->leave("");
        return code;
      });
  }
  /// Their exit codes; that of `unwaited` as it is at once.
  std::vector<int> wait(double seconds, int32_t unwaited = -1) {
    std::vector<int> codes;
    for (Forked& process : processes_)
      codes.push_back(process.wait(codes.size() == static_cast<size_t>(unwaited) ? 0 : seconds));
    return codes;
  }
  int32_t port() const { return port_; }

 private:
  int32_t port_ = 0;
  std::vector<Forked> processes_;
};

/// The run that is disturbed: messages over TCP channels too, for a while, then one more meeting.
int pass_messages(ControlPlane& control, int32_t rank) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const ChannelSpec up{.key = {ChannelKind::kForward, 0, 0, 0}, .from_rank = 0, .to_rank = 1, .largest_bytes = 8};
  const auto transport =
      open_tcp({.rank = rank, .world_size = 2, .store = &control, .control = &control, .channels = {up}});
  for (int64_t i = 0; i < 20; ++i) {
    int64_t number = rank == 0 ? i : -1;
    Message message;
    message.header.key = up.key;
    message.header.step = i;
    message.header.bytes = sizeof number;
    message.data = reinterpret_cast<std::byte*>(&number);
    rank == 0 ? transport->post_send(0, message) : transport->post_receive(0, message);
    while (!message.done)
      if (!transport->progress()) transport->wait(std::chrono::milliseconds(20));
    if (number != i || transport->find_failure()) return 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  control.barrier("over", 2);
  getrusage(RUSAGE_SELF, &after);
  constexpr long kMaxKilobytes = 64 << 10;
  return after.ru_maxrss - before.ru_maxrss < kMaxKilobytes ? 0 : 2;
}

Descriptor call(int32_t port) { return connect_to(kLocal, port, std::chrono::milliseconds(200)); }

void say(const Descriptor& socket, const std::string& words) {
  if (socket) [[maybe_unused]]
    const ssize_t sent = send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string hello_bytes(uint32_t rank) {
  const Hello hello{.rank = rank};
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

/// Goes on until it is killed.
using Attack = std::function<void(int32_t port)>;

const std::vector<std::pair<std::string, Attack>> kAttacks = {
    {"one byte, held",
     [](int32_t port) {
       const Descriptor socket = call(port);
       say(socket, "x");
       pause();
     }},
    {"many connections, held",
     [](int32_t port) {
       std::vector<Descriptor> held;
       while (true) {
         held.push_back(call(port));
         if (held.size() > 500) held.erase(held.begin());
       }
     }},
    {"noise",
     [](int32_t port) {
       while (true) say(call(port), std::string(4096, '\xa5'));
     }},
    {"a size of 1 GiB",
     [](int32_t port) {
       while (true) say(call(port), std::string("\0\0\0\x40", 4) + std::string(1000, '\0'));
     }},
    {"the place of rank 1, without the secret",
     [](int32_t port) {
       while (true) {
         const Descriptor socket = call(port);
         say(socket, hello_bytes(1));
         std::this_thread::sleep_for(std::chrono::milliseconds(5));
         say(socket, std::string(32, 'x'));
       }
     }},
};

/// The attack by a process of another user, where this one may become one.
Forked attack_by_stranger(const Attack& attack, int32_t port) {
  return Forked([&] {
    close_range(STDERR_FILENO + 1, ~0U, 0);  // rank 0's port among them
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0)) return 1;
    attack(port);
    return 0;
  });
}

}  // namespace

TEST_CASE("nothing that a stranger sends to the rendezvous ends, blocks or slows a run") {
  if (geteuid() != 0) std::cout << "SKIP: only root can make the strangers other users; they are this one\n";
  for (const auto& [name, attack] : kAttacks) {
    CAPTURE(name);
    std::optional<Forked> stranger;
    Clock::time_point start;
    Ranks ranks(2, pass_messages, {}, [&, &attack = attack](int32_t port) {
      stranger.emplace(attack_by_stranger(attack, port));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      start = Clock::now();
    });
    CHECK(ranks.wait(20) == std::vector<int>{0, 0});
    CHECK(seconds_since(start) < 10);
  }
}

TEST_CASE("time for connections counts from where all ranks listen, however late the last one starts") {
  const ChannelSpec up{.key = {ChannelKind::kForward, 0, 0, 0}, .from_rank = 0, .to_rank = 1, .largest_bytes = 8};
  Ranks ranks(2, [&](ControlPlane& control, int32_t rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(4000));
    const auto transport = open_tcp(
        {.rank = rank, .world_size = 2, .store = &control, .control = &control, .channels = {up}, .open_seconds = 3});
    control.barrier("open", 2);
    return 0;
  });
  CHECK(ranks.wait(20) == std::vector<int>{0, 0});
}

TEST_CASE("a rank on rank 0's host tells no loopback address to the others, who may be on another host") {
  const ChannelSpec up{.key = {ChannelKind::kForward, 0, 0, 1}, .from_rank = 0, .to_rank = 1, .largest_bytes = 8};
  Ranks ranks(2, [&](ControlPlane& control, int32_t rank) {
    const auto transport = open_tcp({.rank = rank,
                                     .world_size = 2,
                                     .store = &control,
                                     .control = &control,
                                     .channels = {up},
                                     .address = "the-name-of-this-host"});
    control.barrier("open", 2);
    return control.get("tcp/1").starts_with("- ") ? 0 : 1;
  });
  CHECK(ranks.wait(20) == std::vector<int>{0, 0});
}

TEST_CASE("once the ranks have met nobody listens any more") {
  Ranks ranks(2, [](ControlPlane& control, int32_t) {
    control.barrier("met", 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return 0;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK_FALSE(call(ranks.port()));
  CHECK(ranks.wait(10) == std::vector<int>{0, 0});
}

namespace {

/// The store of torchrun's agent, which answers anybody.
class AgentProcess {
 public:
  AgentProcess()
      : port_(free_port()), process_([this] {
          c10d::TCPStoreOptions options;
          options.port = static_cast<uint16_t>(port_);
          options.isServer = true;
          options.waitWorkers = false;
          const auto store = c10::make_intrusive<c10d::TCPStore>(kLocal, options);
          pause();
          return 0;
        }) {}
  Forked rank(int32_t number, int32_t count, const std::function<int(ControlPlane&)>& body) const {
    return Forked([&] {
      const auto control =
          join_run({.rank = number, .world_size = count, .port = port_, .agent_store = true, .times = {.join = 20}});
      const int code = body(*control);
      control->leave("");
      return code;
    });
  }
  int32_t port() const { return port_; }

 private:
  static int32_t free_port() {
    int32_t port = 0;
    listen_at(kLocal, port);
    return port;
  }
  int32_t port_;
  Forked process_;
};

}  // namespace

TEST_CASE("where torchrun's agent has the port, rank 0 says in its store where it listens itself") {
  setenv(graphpipe::wire::kSecretVariable, "the secret of the run that torchrun starts", 1);
  const AgentProcess agent;
  std::vector<Forked> ranks;
  for (int32_t rank = 0; rank < 3; ++rank)
    ranks.push_back(agent.rank(rank, 3, [](ControlPlane& control) {
      control.barrier("met", 3);
      return 0;
    }));
  for (Forked& rank : ranks) CHECK(rank.wait(20) == 0);
}

TEST_CASE("rank 0 on the agent's host names no loopback address in its store, which other hosts could not reach") {
  setenv(graphpipe::wire::kSecretVariable, "the secret of the run that torchrun starts", 1);
  const AgentProcess agent;
  std::vector<Forked> ranks;
  for (int32_t rank = 0; rank < 2; ++rank)
    ranks.push_back(agent.rank(rank, 2, [&](ControlPlane& control) {
      control.barrier("met", 2);
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(agent.port());
      options.waitWorkers = false;
      const std::vector<uint8_t> bytes = c10::make_intrusive<c10d::TCPStore>(kLocal, options)->get("graphpipe/0");
      return std::string(bytes.begin(), bytes.end()).find("127.") == std::string::npos ? 0 : 1;
    }));
  for (Forked& rank : ranks) CHECK(rank.wait(20) == 0);
}

TEST_CASE("what a stranger writes into torchrun's store leads no rank to it") {
  setenv(graphpipe::wire::kSecretVariable, "the secret of the run that torchrun starts", 1);
  const AgentProcess agent;
  for (const std::string& words :
       {text(std::string(64, '0'), " 127.0.0.1 1"), std::string("127.0.0.1 1"), std::string(" ")}) {
    CAPTURE(words);
    Forked stranger([&] {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(agent.port());
      options.waitWorkers = false;
      const auto store = c10::make_intrusive<c10d::TCPStore>(kLocal, options);
      store->set("graphpipe/0", std::vector<uint8_t>(words.begin(), words.end()));
      return 0;
    });
    REQUIRE(stranger.wait(20) == 0);
    Forked rank([&] {
      try {
        join_run({.rank = 1, .world_size = 2, .port = agent.port(), .agent_store = true, .times = {.join = 20}});
      } catch (const RunError& error) {
        return error.diagnostic().code == Code::kEnvironment ? said(error, "was not written by a rank of this run") : 1;
      }
      return 2;
    });
    CHECK(rank.wait(20) == kSaidSo);
  }
}

TEST_CASE("a rank without the secret is told so, and nobody else is disturbed") {
  setenv(graphpipe::wire::kSecretVariable, "another secret, as long as the one of the run", 1);
  int32_t port = 0;
  Descriptor listener = listen_at(kLocal, port);
  Forked other([&] {
    Rendezvous rendezvous{.rank = 0, .world_size = 2, .port = port, .listen_fd = listener.release()};
    const auto control = join_run(rendezvous);
    pause();
    return 0;
  });
  listener = {};
  Forked caller([&] {
    setenv(graphpipe::wire::kSecretVariable, "the secret of the run that this rank belongs to", 1);
    try {
      join_run({.rank = 1, .world_size = 2, .port = port, .times = {.join = 10}});
    } catch (const RunError& error) {
      return error.diagnostic().code == Code::kEnvironment ? said(error, "does not know the secret") : 1;
    }
    return 2;
  });
  CHECK(caller.wait(10) == kSaidSo);
}

namespace {

// A host with other work may hold back any rank for a second, which is no stop.
constexpr ControlTimes kQuick{.beat = 0.05, .silence = 2};

// Three ranks of which one does this before they have started; the others must fail soon and say why.
void check_start_fails(int32_t culprit, const std::function<int(ControlPlane&)>& fault, const std::string& part) {
  CAPTURE(part);
  const auto start = Clock::now();
  Ranks ranks(
      3,
      [&](ControlPlane& control, int32_t rank) {
        try {
          control.barrier("joined", 3);
          if (rank == culprit) return fault(control);
          control.barrier("ready", 3);
        } catch (const RunError& error) {
          return said(error, part);
        }
        return 1;
      },
      kQuick);
  const std::vector<int> codes = ranks.wait(8, culprit);  // which, if it is stopped, does not end by itself
  for (int32_t rank = 0; rank < 3; ++rank)
    if (rank != culprit) CHECK(codes[static_cast<size_t>(rank)] == kSaidSo);
  CHECK(seconds_since(start) < 10);
}

int stop(ControlPlane&) { return raise(SIGSTOP); }
int die(ControlPlane&) {
  raise(SIGKILL);
  return 0;
}
int refuse(ControlPlane& control) {
  control.leave("the weights are not those of the plan");
  std::_Exit(3);
}

}  // namespace

TEST_CASE("a rank that stops, dies or refuses before the start ends it, by name") {
  check_start_fails(1, stop, "rank 1 gave no sign of life for 2 s");
  check_start_fails(0, stop, "rank 0 gave no sign of life for 2 s");
  check_start_fails(2, die, "rank 2 ended");
  check_start_fails(0, die, "rank 0 ended");
  check_start_fails(1, refuse, "rank 1 failed: the weights are not those of the plan");
  check_start_fails(0, refuse, "rank 0 failed: the weights are not those of the plan");
}

TEST_CASE("a rank that never comes ends the start, by name") {
  ControlTimes times = kQuick;
  times.join = 3;
  Ranks ranks(
      3,
      [](ControlPlane& control, int32_t) {
        try {
          control.barrier("ready", 3);
        } catch (const RunError& error) {
          return said(error, "rank 2 did not start within 3 s");
        }
        return 1;
      },
      times, {}, 2);
  CHECK(ranks.wait(10) == std::vector<int>{kSaidSo, kSaidSo});
}

TEST_CASE("a rank that works for long before it is ready holds nobody's start up for good") {
  Ranks ranks(
      3,
      [](ControlPlane& control, int32_t rank) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
        control.barrier("ready", 3);
        return 0;
      },
      kQuick);
  CHECK(ranks.wait(10) == std::vector<int>{0, 0, 0});
}

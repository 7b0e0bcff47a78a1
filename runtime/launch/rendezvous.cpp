#include "runtime/launch/rendezvous.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

std::optional<int32_t> environment_number(const char* name) {
  const char* word = std::getenv(name);
  int32_t value = 0;
  if (word == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(word, word + std::strlen(word), value);
  if (error == std::errc() && *end == '\0' && value >= 0) return value;
  fail(Code::kUsage, text(name, " is not a number"),
       "start the program under torchrun, srun or mpirun, or pass --rank");
}

// What a launcher tells its processes. In this order: mpirun inside a Slurm job hands on the batch script's own
// SLURM_PROCID, and torchrun may be started by either.
struct Launcher {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

const Launcher* find_launcher() {
  for (const Launcher& launcher : kLaunchers)
    if (std::getenv(launcher.rank) != nullptr) return &launcher;
  return nullptr;
}

// torchrun's agent keeps its store when it starts the ranks again: each attempt has keys of its own.
std::string key_prefix() {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return std::string("graphpipe/") + (attempt == nullptr ? "0" : attempt);
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

class TcpStore final : public C10dStore {
 public:
  TcpStore(const Rendezvous& rendezvous, double seconds) {
    c10d::TCPStoreOptions options;
    options.isServer = rendezvous.rank == 0 && !rendezvous.agent_store;
    options.port = static_cast<uint16_t>(rendezvous.port);
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    if (options.isServer && rendezvous.listen_fd >= 0) options.masterListenFd = rendezvous.listen_fd;
    options.useLibUV = false;  // the server of its own that every build has: a second try would find the socket closed
    store_ = c10::make_intrusive<c10d::TCPStore>(rendezvous.address, options);
    store_ = c10::make_intrusive<c10d::PrefixStore>(key_prefix(), store_);
  }

  void set(const std::string& key, const std::string& value) override {
    guarded(key, [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  std::string get(const std::string& key) override {
    std::vector<uint8_t> value;
    guarded(key, [&] { value = store_->get(key); });
    return {value.begin(), value.end()};
  }
  void barrier(const std::string& name, int32_t count) override {
    guarded(name, [&] {
      if (store_->add("barrier/" + name, 1) == count) store_->set("open/" + name, std::vector<uint8_t>{1});
      store_->wait({"open/" + name});
    });
  }
  void* c10d_store() override { return &store_; }

 private:
  template <typename Work>
  static void guarded(const std::string& key, Work work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::string what = error.what();
      fail(Code::kPeerFailed, "the rendezvous failed at '" + key + "': " + what.substr(0, what.find('\n')),
           "see which rank ended first or did not start");
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::optional<int32_t> find_rank(const wire::RunOptions& options) {
  if (options.rank >= 0) return options.rank;
  const Launcher* launcher = find_launcher();
  return launcher == nullptr ? std::nullopt : environment_number(launcher->rank);
}

Rendezvous find_rendezvous(const wire::RunOptions& options, int32_t device, int32_t device_count) {
  Rendezvous r;
  r.listen_fd = options.listen_fd;
  r.rank = find_rank(options).value_or(device);
  const Launcher* launcher = find_launcher();
  r.world_size = device_count;
  if (options.world_size >= 0) r.world_size = options.world_size;
  else if (launcher != nullptr) r.world_size = environment_number(launcher->world_size).value_or(device_count);
  std::optional<int32_t> local_rank;
  if (options.rank < 0 && launcher != nullptr) local_rank = environment_number(launcher->local_rank);
  r.local_rank = local_rank.value_or(r.rank);
  // A parent that is watched starts all ranks, on its own host.
  const bool host_known = local_rank.has_value() || options.parent != 0;
  r.first_on_host = !host_known || r.local_rank == 0;
  if (r.rank != device || r.world_size != device_count)
    fail(Code::kUsage,
         text("this is the program of device ", device, " of ", device_count, ", started as rank ", r.rank, " of ",
              r.world_size),
         text("start ", device_count, " ranks of build/device, or one build/device<i> per rank, in order"));
  const char* address = std::getenv("MASTER_ADDR");
  if (!options.master_address.empty()) r.address = options.master_address;
  else if (address != nullptr && *address != '\0') r.address = address;
  r.port = options.master_port >= 0 ? options.master_port : environment_number("MASTER_PORT").value_or(0);
  if (r.port > wire::kLargestPort)
    fail(Code::kUsage, text("MASTER_PORT is ", r.port, ", and ports end at ", wire::kLargestPort),
         "set it to a port from 1 to 65535");
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  r.agent_store = options.rank < 0 && agent != nullptr && std::strcmp(agent, "True") == 0;
  if (r.world_size > 1 && r.port == 0)
    fail(Code::kUsage, "no port for the rendezvous", "pass --master-port, or set MASTER_ADDR and MASTER_PORT");
  return r;
}

int listen_on_loopback(int32_t& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(static_cast<uint16_t>(port));
  const int on = 1;
  socklen_t length = sizeof name;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 || listen(fd, 1024) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0)
    fail(Code::kEnvironment, text("cannot listen on 127.0.0.1:", port, ": ", std::strerror(errno)),
         "choose another --master-port");
  port = ntohs(name.sin_port);
  return fd;
}

// The system picks the address when a datagram socket is connected; nothing is sent.
std::string local_address_towards(const Rendezvous& rendezvous) {
  if (is_loopback(rendezvous.address)) return "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(rendezvous.port);
  std::string address;
  if (getaddrinfo(rendezvous.address.c_str(), port.c_str(), &hints, &found) == 0 && found != nullptr) {
    const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    char host[NI_MAXHOST] = "";
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&name), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0)
      address = host;
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
  }
  if (address.empty())
    fail(Code::kEnvironment, "no way to rank 0 at " + quoted(ModelText(rendezvous.address)), "check MASTER_ADDR");
  return address;
}

std::unique_ptr<C10dStore> join_store(const Rendezvous& rendezvous, double seconds) {
  Rendezvous r = rendezvous;
  if (r.rank == 0 && !r.agent_store && r.listen_fd < 0 && is_loopback(r.address))
    r.listen_fd = listen_on_loopback(r.port);
  // What c10d warns about ends the run anyway, in our own words.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 2;
  try {
    return std::make_unique<TcpStore>(r, seconds);
  } catch (const RunError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    fail(Code::kEnvironment,
         text("cannot join the rendezvous at ", r.address, ":", r.port, ": ", what.substr(0, what.find('\n'))),
         "check the address, the port and whether rank 0 runs");
  }
}

}  // namespace graphpipe::runtime

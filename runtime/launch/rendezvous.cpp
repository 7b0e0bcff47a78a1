#include "runtime/launch/rendezvous.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/error.h"
#include "runtime/launch/sockets.h"

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

// The variables that launchers set for their processes. In this order: mpirun inside a Slurm job passes on the batch
// script's own SLURM_PROCID, and torchrun may be started by either.
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

// The ranks of one launcher start together; those of a batch system may start minutes apart.
constexpr double kJoinOnOneHost = 20;

// Published instead of rank 0's address if it shares the agent's host, whose name may resolve to a loopback address
// there: the others reach it at the address at which they reach the agent.
constexpr std::string_view kAgentsHost = "-";

// The store of torchrun's agent answers anyone, so it only tells where rank 0 listens, with a MAC.
class AgentStore {
 public:
  AgentStore(const Rendezvous& rendezvous, const Key& key) : key_(key) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(rendezvous.port);
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * rendezvous.times.join));
    store_ = c10::make_intrusive<c10d::TCPStore>(rendezvous.address, options);
  }
  void tell(const std::string& place) {
    const std::string value = mac_of_place(place) + " " + place;
    store_->set(name(), std::vector<uint8_t>(value.begin(), value.end()));
  }
  std::string ask() {
    const std::vector<uint8_t> bytes = store_->get(name());
    const std::string value(bytes.begin(), bytes.end());
    const size_t space = std::min(value.find(' '), value.size());
    std::string place = value.substr(std::min(space + 1, value.size()));
    const std::string mac = mac_of_place(place);
    if (!equal_secretly(std::as_bytes(std::span(value)).first(space), std::as_bytes(std::span(mac))))
      fail(Code::kEnvironment, "what torchrun's store says of rank 0 was not written by a rank of this run",
           "see that all ranks have the same secret and that nobody else writes into torchrun's store");
    return place;
  }

 private:
  // torchrun's agent keeps its store when it restarts the ranks: each attempt uses its own key.
  static std::string name() {
    const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return std::string("graphpipe/") + (attempt == nullptr ? "0" : attempt);
  }
  std::string mac_of_place(const std::string& place) const {
    const std::string words = name() + " " + place;
    const Sha256Digest mac = hmac_sha256(key_, {std::as_bytes(std::span(words))});
    return sha256_hex(mac);
  }

  Key key_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::optional<int32_t> find_rank(const wire::RunOptions& options) {
  if (options.launch.rank >= 0) return options.launch.rank;
  const Launcher* launcher = find_launcher();
  return launcher == nullptr ? std::nullopt : environment_number(launcher->rank);
}

Rendezvous find_rendezvous(const wire::RunOptions& options, int32_t device, int32_t device_count) {
  Rendezvous r;
  r.listen_fd = options.launch.listen_fd;
  r.inherited = options.launch.rendezvous_fds;
  r.rank = find_rank(options).value_or(device);
  const Launcher* launcher = find_launcher();
  r.world_size = device_count;
  if (options.launch.world_size >= 0) r.world_size = options.launch.world_size;
  else if (launcher != nullptr) r.world_size = environment_number(launcher->world_size).value_or(device_count);
  std::optional<int32_t> local_rank;
  if (options.launch.rank < 0 && launcher != nullptr) local_rank = environment_number(launcher->local_rank);
  r.local_rank = local_rank.value_or(r.rank);
  // A parent that is monitored starts all ranks, on its own host.
  const bool host_known = local_rank.has_value() || options.launch.parent != 0;
  r.first_on_host = !host_known || r.local_rank == 0;
  if (r.rank != device || r.world_size != device_count)
    fail(Code::kUsage,
         text("this is the program of device ", device, " of ", device_count, ", started as rank ", r.rank, " of ",
              r.world_size),
         text("start ", device_count, " ranks of build/device, or one build/device<i> per rank, in order"));
  const char* address = std::getenv("MASTER_ADDR");
  if (!options.launch.master_address.empty()) r.address = options.launch.master_address;
  else if (address != nullptr && *address != '\0') r.address = address;
  r.port = options.launch.master_port >= 0 ? options.launch.master_port : environment_number("MASTER_PORT").value_or(0);
  if (r.port > wire::kLargestPort)
    fail(Code::kUsage, text("MASTER_PORT is ", r.port, ", and ports end at ", wire::kLargestPort),
         "set it to a port from 1 to 65535");
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  r.agent_store = options.launch.rank < 0 && agent != nullptr && std::strcmp(agent, "True") == 0;
  if (!r.inherited.empty()) r.times.join = kJoinOnOneHost;
  const size_t connections = r.rank == 0 ? static_cast<size_t>(r.world_size) - 1 : 1;
  if (!r.inherited.empty() && r.inherited.size() != connections)
    fail(Code::kUsage,
         text("--rendezvous-fds names ", r.inherited.size(), " descriptors, where rank ", r.rank, " has ", connections,
              " connections"),
         "leave it to `graphpipe run`");
  if (r.world_size > 1 && r.port == 0 && r.inherited.empty())
    fail(Code::kUsage, "no port for the rendezvous", "pass --master-port, or set MASTER_ADDR and MASTER_PORT");
  return r;
}

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kConnectTime{2000}, kAnswerTime{5000}, kBetweenCalls{50};

template <typename Work>
void with_agent(const Rendezvous& r, const Key& key, Work work) {
  try {
    AgentStore agent(r, key);
    work(agent);
  } catch (const RunError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    fail(Code::kEnvironment,
         text("torchrun's store at ", r.address, ":", r.port, ": ", what.substr(0, what.find('\n'))),
         "check MASTER_ADDR, MASTER_PORT and whether torchrun's agent runs");
  }
}

Hello control_hello(int32_t rank) { return {.purpose = Hello::Purpose::kControl, .rank = static_cast<uint32_t>(rank)}; }

std::unique_ptr<ControlPlane> open_introduced(const Rendezvous& r, Descriptor socket, const Key& session,
                                              const Key& key, std::unique_ptr<ControlServer> server) {
  Introduced introduced{.socket = std::move(socket), .hello = control_hello(r.rank), .session = session};
  return open_control(r.rank, std::move(introduced), std::move(server), key, r.times, r.get_seconds);
}

// If torchrun's agent occupies the port, on another one.
Descriptor listen_as_rank_zero(const Rendezvous& r, const Key& key) {
  if (r.listen_fd >= 0) return Descriptor(r.listen_fd);
  int32_t port = r.agent_store ? 0 : r.port;
  Descriptor listener = listen_at(r.address, port);
  if (r.agent_store) {
    const std::string own = local_address_towards(r.address, r.port);
    const std::string place = text(is_loopback(own) ? kAgentsHost : own, " ", port);
    with_agent(r, key, [&](AgentStore& agent) { agent.tell(place); });
  }
  return listener;
}

std::unique_ptr<ControlPlane> serve_run(const Rendezvous& r, const Key& key) {
  std::vector<Descriptor> inherited(static_cast<size_t>(r.world_size));
  for (size_t i = 0; i < r.inherited.size(); ++i) inherited[i + 1] = Descriptor(r.inherited[i]);
  auto [own, served] = connected_pair();
  inherited[0] = std::move(served);
  Descriptor listener;
  if (r.inherited.empty() && r.world_size > 1) listener = listen_as_rank_zero(r, key);
  auto server = std::make_unique<ControlServer>(std::move(inherited), std::move(listener), key, r.times);
  Key session{};
  const milliseconds patience(static_cast<int64_t>(1000 * r.times.join));
  if (introduce(own.get(), control_hello(r.rank), key, patience, session) != Answer::kAccepted)
    fail(Code::kEnvironment, "rank 0 cannot reach itself", "see whether this host has threads and memory left");
  return open_introduced(r, std::move(own), session, key, std::move(server));
}

// Unauthenticated peers may keep rank 0 from answering a call, so it is retried until the time is up.
std::unique_ptr<ControlPlane> call_rank_zero(const Rendezvous& rendezvous, const Key& key) {
  Rendezvous r = rendezvous;
  if (r.agent_store)
    with_agent(rendezvous, key, [&](AgentStore& agent) { std::istringstream(agent.ask()) >> r.address >> r.port; });
  if (r.address == kAgentsHost) r.address = rendezvous.address;
  const Clock::time_point deadline = Clock::now() + milliseconds(static_cast<int64_t>(1000 * r.times.join));
  do {
    Descriptor socket = connect_to(r.address, r.port, kConnectTime);
    Key session{};
    const Answer answer =
        socket ? introduce(socket.get(), control_hello(r.rank), key, kAnswerTime, session) : Answer::kClosed;
    if (answer == Answer::kAccepted) return open_introduced(r, std::move(socket), session, key, nullptr);
    if (answer == Answer::kWrong)
      fail(Code::kEnvironment,
           text("what listens at ", r.address, ":", r.port, " does not know the secret of this run"),
           "give all ranks the same secret, and choose a port that nothing else uses");
    std::this_thread::sleep_for(kBetweenCalls);
  } while (Clock::now() < deadline);
  fail(Code::kPeerFailed, text("no rank 0 at ", r.address, ":", r.port, " within ", r.times.join, " s"),
       "check the address, the port and whether rank 0 runs");
}

std::unique_ptr<ControlPlane> call_by_inherited(const Rendezvous& r, const Key& key) {
  Descriptor socket(r.inherited.front());
  Key session{};
  const milliseconds patience(static_cast<int64_t>(1000 * r.times.join));
  const Answer answer = introduce(socket.get(), control_hello(r.rank), key, patience, session);
  if (answer == Answer::kAccepted) return open_introduced(r, std::move(socket), session, key, nullptr);
  if (answer == Answer::kSilent)
    fail(Code::kPeerFailed, text("rank 0 did not start within ", r.times.join, " s"),
         "see whether its process is stopped");
  fail(Code::kPeerFailed, "rank 0 ended before the ranks met", "look at that rank's own message");
}

}  // namespace

std::unique_ptr<ControlPlane> join_run(const Rendezvous& r) {
  // What c10d warns about ends the run anyway, with our own message.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 2;
  const Key key = find_secret();
  if (r.rank == 0) return serve_run(r, key);
  return r.inherited.empty() ? call_rank_zero(r, key) : call_by_inherited(r, key);
}

}  // namespace graphpipe::runtime

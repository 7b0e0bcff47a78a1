#pragma once
// Rank 0's side of the control connections: the rendezvous store, the detection of ranks that end or stop before they
// have started, and the relay of what each rank works on.

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/launch/frames.h"
#include "runtime/launch/handshake.h"

namespace graphpipe::runtime {

/// The key that the server itself sets once a rank has left the run, whatever way. All that the rank has set is there
/// by then.
std::string key_of_left_rank(size_t rank);

/// Prefix of a failure that its rank has reported itself.
inline constexpr std::string_view kToldFailure = "failed: ";

/// How often the ends of a control connection send, and how much silence means that one has stopped. In seconds.
struct ControlTimes {
  /// Time limit for all ranks to join.
  double join = 120;
  double beat = 1;
  double silence = 10;
  /// Period at which activities are relayed, if a transport needs them.
  double share = 0.05;
};

/// Runs in a thread of rank 0. The connections of all ranks end there, rank 0's own included.
class ControlServer {
 public:
  /// `inherited` has a connected socket per rank, or none for a rank that connects to `listener` (which may be none if
  /// no rank does). The listener is closed once all ranks have joined.
  ControlServer(std::vector<Descriptor> inherited, Descriptor listener, const Key& key, ControlTimes times);
  /// Serves the others until they have left, for two seconds at most, and ends.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// What the store has for the key now; for any thread.
  std::optional<std::string> find(const std::string& key) const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Member {
    std::optional<Answerer> answerer;  // an inherited connection before its handshake
    std::optional<FrameStream> frames;
    bool left = false, started = false;
    double silent = 0;  // seconds since its last frame, or since the server began
    std::string activity;
  };

  void run();
  void serve();
  void wait_for_news(bool ending);
  void meet_inherited();
  void accept_ranks();
  void join(size_t rank, Introduced introduced);
  void read(size_t rank);
  void handle(size_t rank, const Frame& frame);
  void handle_arrival(const std::string& name, const std::string& count);
  void set(const std::string& key, const std::string& value);
  void lose(size_t rank);
  void note_left(size_t rank);
  /// Records the first failure and sends it to all, to rank 0 last.
  void fail_run(size_t rank, const std::string& what);
  void tell_failure(size_t rank);
  void tick();
  void watch_silence(double passed);
  double seconds_to_news() const;
  bool all_there() const;
  bool others_left() const;

  std::vector<Member> members_;  // by rank
  std::optional<Acceptor> acceptor_;
  Key key_;
  ControlTimes times_;
  mutable std::mutex values_mutex_;  // for find(): only the server's thread changes them
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<size_t>> waiting_;  // ranks, by key
  std::map<std::string, int32_t> arrivals_;             // by barrier
  std::optional<Frame> failure_;
  Clock::time_point last_tick_ = Clock::now();
  double since_news_ = 0;
  bool has_news_ = false;
  Descriptor wake_read_, wake_write_;
  std::thread thread_;
};

}  // namespace graphpipe::runtime

#include "runtime/reference/run_together.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace graphpipe::runtime {
namespace {

/// Ends a part that waits for one that has failed.
struct Abandoned {};

class Meeting {
 public:
  explicit Meeting(size_t replicas) : shares_(replicas) {}

  /// Needs: `turn` holds the lock.
  std::vector<double> gather(size_t replica, std::span<const double> own, std::unique_lock<std::mutex>& turn) {
    shares_[replica].assign(own.begin(), own.end());
    const int64_t round = round_;
    if (++arrived_ == shares_.size()) {
      arrived_ = 0;
      ++round_;
      all_.clear();
      for (const std::vector<double>& share : shares_) all_.insert(all_.end(), share.begin(), share.end());
      changed_.notify_all();
    }
    changed_.wait(turn, [&] { return round_ != round || failure_; });
    if (round_ == round) throw Abandoned();
    return all_;
  }

  void fail(std::exception_ptr failure) {
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }
  std::mutex& turn() { return turn_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  std::mutex turn_;
  std::condition_variable changed_;
  std::vector<std::vector<double>> shares_;
  std::vector<double> all_;
  size_t arrived_ = 0;
  int64_t round_ = 0;
  std::exception_ptr failure_;
};

class Share final : public ReplicaExchange {
 public:
  Share(Meeting& meeting, size_t replica, std::unique_lock<std::mutex>& turn)
      : meeting_(meeting), replica_(replica), turn_(turn) {}
  std::span<const double> gather(std::span<const double> own) override {
    return all_ = meeting_.gather(replica_, own, turn_);
  }

 private:
  Meeting& meeting_;
  size_t replica_;
  std::unique_lock<std::mutex>& turn_;
  std::vector<double> all_;
};

}  // namespace

void run_together(const Device& device, std::span<const std::function<void(ReplicaExchange&)>> parts) {
  Meeting meeting(parts.size());
  const at::ThreadLocalState state;
  const int threads = at::get_num_threads();
  const auto run = [&](size_t replica) {
    const at::ThreadLocalStateGuard guard(state);
    at::set_num_threads(threads);
    device.enter_thread();
    std::unique_lock turn(meeting.turn());
    try {
      Share share(meeting, replica, turn);
      parts[replica](share);
    } catch (const Abandoned&) {
    } catch (...) {
      meeting.fail(std::current_exception());
    }
  };
  std::vector<std::thread> running;
  for (size_t replica = 0; replica < parts.size(); ++replica) running.emplace_back(run, replica);
  for (std::thread& thread : running) thread.join();
  if (meeting.failure()) std::rethrow_exception(meeting.failure());
}

}  // namespace graphpipe::runtime

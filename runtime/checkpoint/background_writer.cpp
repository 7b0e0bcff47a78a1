#include "runtime/checkpoint/background_writer.h"

#include <c10/core/InferenceMode.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "support/check.h"

namespace graphpipe::runtime {
namespace {

constexpr int kNiceness = 10;

// Linux keeps a niceness per thread: on a machine without a spare core, training takes precedence.
void give_way() { setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNiceness); }

}  // namespace

void BackgroundWriter::start(std::function<void()> job) {
  GP_CHECK(is_idle());
  join();
  running_.store(true, std::memory_order_release);
  thread_ = std::thread([this, job = std::move(job)] {
    give_way();
    const c10::InferenceMode no_autograd;
    try {
      job();
    } catch (...) {
      problem_ = std::current_exception();
    }
    running_.store(false, std::memory_order_release);
  });
}

void BackgroundWriter::rethrow() {
  if (!is_idle() || !problem_) return;
  std::rethrow_exception(std::exchange(problem_, nullptr));
}

}  // namespace graphpipe::runtime

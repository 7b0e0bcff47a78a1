#include "runtime/launch/run_main.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "runtime/error.h"
#include "runtime/executor/allocator.h"
#include "runtime/io/output_file.h"
#include "wire/exit_codes.h"
#include "wire/run_outputs.h"

namespace graphpipe::runtime {
namespace {

void watch_parent(int64_t parent) {
  if (parent == 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before the call.
  if (getppid() != parent) std::_Exit(wire::kExitPeerFailed);
}

int report(const Diagnostic& diagnostic) {
  std::fprintf(stderr, "%s\n", to_line(diagnostic).c_str());
  return exit_code_of(diagnostic.code);
}

int run_caught(const std::function<void()>& body, const std::function<std::string()>& where) {
  try {
    body();
    return wire::kExitOk;
  } catch (const RunError& error) {
    return report(error.diagnostic());
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return report({.code = Code::kPeerFailed,
                   .severity = Severity::kError,
                   .origin = {},
                   .message = where() + ": " + Terminal::encode_text(what.substr(0, what.find('\n'))).str(),
                   .hint = "check that the data fits the model (labels and ids in range) and the memory of this host"});
  }
}

}  // namespace

int run_main(const PlanTable& plan, int argc, char** argv, const std::function<void(const wire::RunOptions&)>& body,
             const std::function<std::string()>& where) {
  wire::RunOptions options;
  const std::string problem = wire::parse_run_options({argv + 1, argv + argc}, options);
  if (!problem.empty()) return report({.code = Code::kUsage, .message = problem, .hint = "run it with --help"});
  if (options.help) {
    std::fputs(wire::run_options_help().c_str(), stdout);
    return wire::kExitOk;
  }
  watch_parent(options.parent);
  const auto work = [&] {
    at::set_num_threads(options.threads > 0 ? options.threads : std::max(1, plan.threads));
    const c10::InferenceMode no_autograd;
    count_tensor_bytes();
    body(options);
  };
  const int code = run_caught(work, where);
  std::fflush(nullptr);
  return code;
}

void check_outputs(const wire::RunOptions& options, const std::string& folder) {
  for (const std::string* path : {&options.save, &options.save_gradients, &options.save_outputs, &options.trace}) {
    if (const std::string kept = wire::kept_file(*path, folder, options.data); !kept.empty())
      fail(Code::kUsage, text(quoted(ModelText(*path)), " is ", kept), "name another file to write");
    check_output(*path);
  }
}

double stall_seconds(const PlanTable& plan, const wire::RunOptions& options) {
  constexpr double kOfLongestAction = 5;  // predictions are for a machine without other work
  const double longest = static_cast<double>(plan.longest_action_ms) / 1000;
  return options.stall_timeout.value_or(std::max(wire::kStallTimeout, kOfLongestAction * longest));
}

std::unique_ptr<Data> open_data(const wire::RunOptions& options) {
  return options.data.empty() ? synthetic_data(options.seed) : data_folder(options.data);
}

void note_step(const wire::RunOptions& options, std::vector<LossShare> shares, wire::RunResult& result) {
  std::string loss;
  if (!shares.empty()) {
    result.losses.push_back(total_loss(std::move(shares)));
    char words[40];
    std::snprintf(words, sizeof words, " loss %.9g", result.losses.back());
    loss = words;
  }
  if (options.progress)
    std::fprintf(stderr, "step %zu of %lld%s\n", result.step_seconds.size(), static_cast<long long>(options.steps),
                 loss.c_str());
}

void print_result(const wire::RunOptions& options, const wire::RunResult& result) {
  std::fputs((options.json ? wire::to_json(result) : wire::to_lines(result)).c_str(), stdout);
}

}  // namespace graphpipe::runtime

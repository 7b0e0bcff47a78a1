#include "runtime/launch/run_main.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/error.h"
#include "runtime/executor/allocator.h"
#include "runtime/io/feed.h"
#include "runtime/io/folder.h"
#include "runtime/io/output_file.h"
#include "runtime/launch/fork_ranks.h"
#include "support/memory_limit.h"
#include "wire/check_data.h"
#include "wire/exit_codes.h"
#include "wire/problem_line.h"
#include "wire/run_outputs.h"

namespace graphpipe::runtime {
namespace {

void watch_parent(int64_t parent) {
  if (parent == 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the call.
  if (getppid() != parent) std::_Exit(wire::kExitPeerFailed);
}

void print(const Diagnostics& diagnostics) {
  for (const Diagnostic& diagnostic : diagnostics) std::fprintf(stderr, "%s\n", to_line(diagnostic).c_str());
}

int report(const Diagnostics& diagnostics) {
  print(diagnostics);
  return exit_code_of(diagnostics.front().code);
}

/// An operator of the model was given an index that is out of range for its table. Most are found earlier, in the data;
/// these are computed by the model.
bool is_index_error(const std::exception& error) {
  if (dynamic_cast<const c10::IndexError*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::Error*>(&error) == nullptr) return false;
  const std::string line = first_line(error.what());
  return line.find("out of bounds") != std::string::npos || line.find("out of range") != std::string::npos;
}

Diagnostic foreign_error(const std::exception& error, const std::string& where) {
  Diagnostic problem{.code = Code::kPeerFailed,
                     .message = where + ": " + Terminal::encode_text(first_line(error.what())).str(),
                     .hint = memory_hint()};
  // CUDA itself may lack memory too, for a kernel's code for example.
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      first_line(error.what()).find("CUDA error: out of memory") != std::string::npos)
    problem.hint = "plan with the bytes that the GPU has free (--memory), or leave graphs out (--no-cuda-graphs)";
  if (!is_index_error(error)) return problem;
  problem.code = Code::kBadData;
  problem.hint = "check the ids in the data of these samples, and what the model computes from them";
  return problem;
}

// A launcher has already computed the number of steps.
void end_after_epochs(wire::RunOptions& options) {
  const bool ordered =
      options.data.epochs > 0 || options.data.shuffle || options.data.last_batch != wire::LastBatch::kWrap;
  if ((options.data.eval_every > 0 || !options.output.save_eval_outputs.empty()) && options.data.eval_folder.empty())
    fail(Code::kUsage,
         "--eval-every and --save-eval-outputs are about evaluations, and there is nothing to evaluate on",
         "add --eval-data, or leave them out");
  if (!options.data.folder.empty() && !options.data.feed.empty())
    fail(Code::kUsage, "--data and --feed both say where data come from", "pass one of them");
  if (options.data.folder.empty() && ordered)
    fail(Code::kUsage, "--epochs, --shuffle and --last-batch are about data in files, and the run reads none",
         "pass --data, or leave them out");
  if (options.data.epochs == 0) return;
  options.data.steps = steps_in_folder(find_folder(options.launch.folder), options.data.folder,
                                       wire::data_use(options.data, 0), options.data.paddings);
  options.data.epochs = 0;
  const std::string at_odds = wire::flags_at_odds(options);
  if (!at_odds.empty()) fail(Code::kUsage, at_odds, "leave one out, or change it");
}

/// A launcher tells of them itself, of what several ranks find once.
int report(const Diagnostics& diagnostics, bool has_launcher) {
  if (!has_launcher) return report(diagnostics);
  for (const Diagnostic& diagnostic : diagnostics) std::printf("%s\n", wire::problem_line(diagnostic).c_str());
  return exit_code_of(diagnostics.front().code);
}

int run_caught(const std::function<void()>& body, const std::function<std::string()>& where,
               const wire::RunOptions& options) {
  try {
    body();
    return wire::kExitOk;
  } catch (const RunError& error) {
    const Diagnostic& first = error.diagnostics().front();
    // The launcher hears of it from the rank whose error it is.
    if (options.launch.parent != 0 && first.severity == Severity::kNote) return exit_code_of(first.code);
    return report(error.diagnostics(), options.launch.parent != 0);
  } catch (const std::exception& error) {
    return report({foreign_error(error, where())}, options.launch.parent != 0);
  }
}

}  // namespace

int run_main(const PlanTable& plan, int argc, char** argv, const std::function<void(const wire::RunOptions&)>& body,
             const std::function<std::string()>& where) {
  const std::vector<std::string> words = words_of_rank({argv, argv + argc});
  wire::RunOptions options;
  const std::string problem = wire::parse_run_options({words.begin() + 1, words.end()}, options);
  if (!problem.empty()) return report({{.code = Code::kUsage, .message = problem, .hint = "run it with --help"}});
  if (options.launch.help) {
    std::fputs(wire::run_options_help().c_str(), stdout);
    return wire::kExitOk;
  }
  watch_parent(options.launch.parent);
  signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write, which says what it is
  const auto work = [&] {
    end_after_epochs(options);
    at::set_num_threads(options.launch.threads > 0 ? options.launch.threads : std::max(1, plan.threads));
    const c10::InferenceMode no_autograd;
    count_tensor_bytes();
    if (options.launch.no_arena) leave_out_arena();
    body(options);
  };
  const int code = run_caught(work, where, options);
  std::fflush(nullptr);  // this rank's own problem is heard before the others'
  return code;
}

int code_of_end(bool complete, const Diagnostics& found, bool has_launcher) {
  const int code = found.empty() ? wire::kExitOk : report(found, has_launcher);
  return complete ? code : wire::kExitPartial;
}

void tell(const Diagnostic& diagnostic, bool has_launcher) { report({diagnostic}, has_launcher); }

void end_process(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

std::string first_line(std::string_view words) { return std::string(words.substr(0, words.find('\n'))); }

uint64_t seed_of(const PlanTable& plan, const wire::RunOptions& options) {
  return options.data.seed.value_or(plan.seed);
}

void check_outputs(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder) {
  if (!options.output.save_outputs.empty() && plan.outputs == 0)
    fail(Code::kUsage, "--save-outputs: no output of the model has an axis of the samples",
         "give the model an output with one row per sample: what a batch has once, such as a mean or similarities of "
         "[batch, batch], has no place in a file of all samples");
  if (!options.output.save_eval_outputs.empty() && plan.outputs == 0)
    fail(Code::kUsage, "--save-eval-outputs: the loss needs no output of the model that has an axis of the samples",
         "compile the model with --policy inference, and run that with --weights and --save-outputs");
  for (const auto& [flag, path] : wire::written_files(options)) {
    if (const std::string kept = wire::kept_file(path, folder, options); !kept.empty())
      fail(Code::kUsage, text(flag, ": ", quoted(ModelText(path)), " is ", kept), "name another file to write");
    check_output(path);
  }
}

double stall_seconds(const PlanTable& plan, const wire::RunOptions& options) {
  constexpr double kOfLongestAction = 5;  // predictions assume an otherwise idle machine
  const double longest = static_cast<double>(plan.longest_action_ms) / 1000;
  return options.launch.stall_timeout.value_or(std::max(wire::kStallTimeout, kOfLongestAction * longest));
}

void check_data(const wire::RunOptions& options, const std::string& folder) {
  const std::pair<const std::string*, wire::DataUse> all[] = {{&options.data.folder, wire::data_use(options.data, 0)},
                                                              {&options.data.eval_folder, wire::evaluation_use()}};
  for (const auto& [data, use] : all) {
    if (data->empty() || (options.launch.parent != 0 && !wire::is_test_data_folder(*data))) continue;
    const Diagnostics found = runtime::check_data_folder(folder, *data, use, options.data.paddings);
    if (has_error(found)) throw RunError(found);
    print(found);
  }
}

std::unique_ptr<Data> open_eval_data(const PlanTable& plan, const wire::RunOptions& options,
                                     const std::string& folder) {
  if (options.data.eval_folder.empty()) return nullptr;
  return data_folder(options.data.eval_folder, value_or_throw(wire::read_data_table(folder, options.data.paddings)),
                     plan.batch, wire::evaluation_use().rule);
}

std::unique_ptr<Data> open_data(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder,
                                const DataReader& reader) {
  constexpr double kOfStallTime = 0.5;  // ranks that wait for another one's data blame it after the full time-out
  if (!options.data.feed.empty())
    return open_feed({.socket = options.data.feed,
                      .table = value_or_throw(wire::read_data_table(folder, options.data.paddings)),
                      .batch = plan.batch,
                      .ranks = reader.ranks,
                      .rank = reader.rank,
                      .patience_seconds = kOfStallTime * stall_seconds(plan, options)});
  if (options.data.folder.empty()) return synthetic_data(plan.batch, seed_of(plan, options));
  return data_folder(options.data.folder, value_or_throw(wire::read_data_table(folder, options.data.paddings)),
                     plan.batch, wire::data_use(options.data, seed_of(plan, options)).rule, reader.reads_ahead);
}

}  // namespace graphpipe::runtime

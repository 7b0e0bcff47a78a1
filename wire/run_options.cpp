#include "wire/run_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>

namespace graphpipe::wire {
namespace {

bool read(const std::string& word, std::string& value) {
  value = word;
  return !word.empty();
}

template <typename Number>
bool read_number(const std::string& word, Number& value) {
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  return error == std::errc() && stop == end && !word.empty();
}
bool read(const std::string& word, int64_t& value) { return read_number(word, value) && value >= 0; }
bool read(const std::string& word, uint64_t& value) { return read_number(word, value); }
bool read(const std::string& word, int& value) { return read_number(word, value) && value >= 0; }
bool read(const std::string& word, double& value) {
  return read_number(word, value) && std::isfinite(value) && value >= 0;
}
template <typename Number>
bool read(const std::string& word, std::optional<Number>& value) {
  Number number{};
  if (!read(word, number)) return false;
  value = number;
  return true;
}

bool read(const std::string& word, std::vector<int>& values) {
  for (size_t begin = 0; begin <= word.size(); begin = std::min(word.find(',', begin), word.size()) + 1) {
    int value = 0;
    if (!read(word.substr(begin, word.find(',', begin) - begin), value)) return false;
    values.push_back(value);
  }
  return true;
}

std::string write(const std::string& value) { return value; }
std::string write(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}
template <typename Integer>
std::string write(Integer value) requires std::is_integral_v<Integer> {
  return std::to_string(value);
}
template <typename Number>
std::string write(const std::optional<Number>& value) {
  return value ? write(*value) : std::string();
}

std::string write(const std::vector<int>& values) {
  std::string out;
  for (int value : values) out += (out.empty() ? "" : ",") + std::to_string(value);
  return out;
}

// One row per flag; a flag without `read` is a switch.
struct Flag {
  const char* name;
  const char* value_name;
  const char* help;
  std::function<bool(const std::string&, RunOptions&)> read;
  std::function<std::string(const RunOptions&)> write;
};

template <auto Member>
Flag flag(const char* name, const char* value_name, const char* help) {
  return {name, value_name, help, [](const std::string& word, RunOptions& o) { return read(word, o.*Member); },
          [](const RunOptions& o) { return write(o.*Member); }};
}
template <auto Member>
Flag switch_flag(const char* name, const char* help) {
  return {name, "", help,
          [](const std::string&, RunOptions& o) {
            o.*Member = true;
            return true;
          },
          [](const RunOptions& o) { return std::string(o.*Member ? "1" : ""); }};
}

bool read_betas(const std::string& word, RunOptions& options) {
  const size_t comma = word.find(',');
  return comma != std::string::npos && read(word.substr(0, comma), options.beta1) &&
         read(word.substr(comma + 1), options.beta2) && options.beta1 < 1 && options.beta2 < 1;
}

bool read_port(const std::string& word, RunOptions& options) {
  return read(word, options.master_port) && options.master_port >= 1 && options.master_port <= kLargestPort;
}

const std::vector<Flag>& flags() {
  using O = RunOptions;
  static const std::vector<Flag> kFlags = {
      flag<&O::data>("--data", "DIR", "folder with one NAME.npy per input and label; synthetic data without it"),
      flag<&O::steps>("--steps", "N", "training steps (1)"),
      flag<&O::learning_rate>("--lr", "X", "learning rate (SGD 0.01, AdamW 0.001)"),
      flag<&O::momentum>("--momentum", "X", "SGD momentum (0)"),
      flag<&O::weight_decay>("--weight-decay", "X", "weight decay (SGD 0, AdamW 0.01)"),
      {"--betas", "X,Y", "AdamW moment decays (0.9,0.999)", read_betas,
       [](const O& o) { return write(o.beta1) + "," + write(o.beta2); }},
      flag<&O::epsilon>("--eps", "X", "AdamW epsilon (1e-8)"),
      flag<&O::clip_norm>("--clip-norm", "X", "largest global gradient norm (none)"),
      flag<&O::seed>("--seed", "N", "seed of dropout and of synthetic data (the plan's)"),
      flag<&O::threads>("--threads", "N", "CPU threads of this program (the plan's)"),
      flag<&O::save>("--save", "FILE", "writes the final parameters as safetensors"),
      flag<&O::save_gradients>("--save-gradients", "FILE", "writes the last step's gradients as safetensors"),
      flag<&O::record_steps>("--record-steps", "DIR", "interpreter: writes weights and gradients of every step"),
      flag<&O::follow_steps>("--follow-steps", "DIR", "interpreter: begins every step with weights of such a folder"),
      flag<&O::save_outputs>("--save-outputs", "FILE", "writes the outputs of a forward-only plan as safetensors"),
      flag<&O::weights>("--weights", "FILE", "parameters to start from, written by --save"),
      flag<&O::trace>("--trace", "FILE", "writes when every action ran, for Perfetto or chrome://tracing"),
      flag<&O::device>("--device", "NAME", "cpu or cuda (cpu)"),
      flag<&O::stall_timeout>("--stall-timeout", "SECONDS",
                              "a peer without progress for longer ends the run (10, or what long actions need)"),
      switch_flag<&O::json>("--json", "one JSON object on stdout"),
      switch_flag<&O::progress>("--progress", "with --json: one line per step on stderr"),
      flag<&O::transport>("--transport", "NAME", "auto, shm, tcp or nccl (auto)"),
      flag<&O::folder>("--folder", "DIR", "the generated folder (found from the program's place)"),
      flag<&O::rank>("--rank", "N", "this program's rank (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID)"),
      flag<&O::world_size>("--world-size", "N", "number of ranks (WORLD_SIZE, OMPI_COMM_WORLD_SIZE, ...)"),
      flag<&O::master_address>("--master-address", "HOST", "where rank 0 serves the rendezvous (MASTER_ADDR)"),
      {"--master-port", "PORT", "its port, 1 to 65535 (MASTER_PORT)", read_port,
       [](const O& o) { return write(o.master_port); }},
      flag<&O::listen_fd>("--listen-fd", "FD", "rank 0: inherited listening socket of the rendezvous"),
      flag<&O::rendezvous_fds>("--rendezvous-fds", "FD,...", "inherited connections between rank 0 and the others"),
      flag<&O::parent>("--parent", "PID", "dies with this process"),
      switch_flag<&O::help>("--help", "prints this text"),
  };
  return kFlags;
}

bool is_switch(const Flag& flag) { return *flag.value_name == '\0'; }

const Flag* find_flag(const std::string& name) {
  for (const Flag& flag : flags())
    if (name == flag.name) return &flag;
  return nullptr;
}

}  // namespace

std::string step_file(const std::string& folder, int64_t step, const std::string& kind) {
  return folder + "/step" + std::to_string(step) + "." + kind + ".safetensors";
}

std::string parse_run_options(const std::vector<std::string>& arguments, RunOptions& options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const Flag* flag = find_flag(name);
    if (flag == nullptr) return "unknown flag '" + name + "'; --help lists the flags";
    std::string value;
    if (equals != std::string::npos) {
      if (is_switch(*flag)) return name + " takes no value";
      value = arguments[i].substr(equals + 1);
    } else if (!is_switch(*flag)) {
      if (++i == arguments.size()) return name + " needs a value " + flag->value_name;
      value = arguments[i];
    }
    if (!flag->read(value, options)) return name + " does not take '" + value + "'; it takes " + flag->value_name;
  }
  return "";
}

std::vector<std::string> to_arguments(const RunOptions& options) {
  const RunOptions defaults;
  std::vector<std::string> arguments;
  for (const Flag& flag : flags()) {
    const std::string value = flag.write(options);
    if (value == flag.write(defaults)) continue;
    arguments.push_back(flag.name);
    if (!is_switch(flag)) arguments.push_back(value);
  }
  return arguments;
}

std::string run_options_help() {
  std::string out = "One device of a pipeline. All ranks together train; rank 0 prints the losses.\n\n";
  for (const Flag& flag : flags()) {
    std::string left = std::string("  ") + flag.name + (is_switch(flag) ? "" : " ") + flag.value_name;
    left.resize(std::max<size_t>(left.size() + 1, 28), ' ');
    out += left + flag.help + "\n";
  }
  return out + "\nExample: torchrun --no-python --nproc-per-node 2 out/build/device --steps 5 --lr 0.1\n";
}

}  // namespace graphpipe::wire

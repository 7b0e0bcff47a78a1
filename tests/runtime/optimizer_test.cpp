// Updates against recorded ones (tests/data/make_optimizer_references.py), and what holds of every optimizer.

#include "runtime/optimizers/optimizer.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "runtime/executor/allocator.h"
#include "runtime/kernels/table_rows.h"
#include "runtime/optimizers/gradient_norm.h"
#include "runtime/optimizers/registry.h"
#include "runtime/optimizers/update_settings.h"
#include "wire/run_options.h"

using namespace graphpipe::runtime;

namespace {

at::Tensor floats(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(at::kFloat));
  for (size_t i = 0; i < values.size(); ++i) tensor.mutable_data_ptr<float>()[i] = static_cast<float>(values[i]);
  return tensor;
}

at::Tensor gradient(int step) {
  std::vector<double> values;
  for (int i = 0; i < 5; ++i) values.push_back(std::sin(1.0 + i + 0.5 * step));
  return floats(values);
}

void train(Optimizer& optimizer, size_t index, at::Tensor& weight, int first, int last) {
  for (int step = first; step < last; ++step) optimizer.step(index, weight, gradient(step).view(weight.sizes()));
}

at::Tensor start() { return floats({0.5, -1.25, 2.0, 0.0, 3.5}).view({1, 5}); }

// Numbers that make every rule remember all that it can.
Optimizer busy(const char* name, size_t parameters = 1) {
  const UpdateSettings settings = update_settings(name, {.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1});
  return {name, std::vector<UpdateTerms>(parameters, settings.terms_of("w", 2, false))};
}

at::Tensor trained(const char* name) {
  Optimizer optimizer = busy(name);
  at::Tensor weight = start();
  train(optimizer, 0, weight, 0, 4);
  return weight;
}

// Of tests/data/make_optimizer_references.py.
at::Tensor recorded_start(const std::vector<int64_t>& dims, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(std::cos(static_cast<double>(i)) / 2);
  return floats(values).view(dims);
}
at::Tensor recorded_gradient(const std::vector<int64_t>& dims, int64_t count, int64_t step) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(static_cast<double>(1 + (7 * i * i % 97)) + static_cast<double>(step) / 2));
  return floats(values).view(dims);
}

// What follows the name of the case: the parameter and the flags; then the weights after some steps.
struct RecordedUpdates {
  std::string optimizer, kind, flags;
  std::vector<int64_t> dims;
  std::map<int64_t, std::vector<double>> after;
};

std::vector<double> numbers_in(std::istringstream& words) {
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

std::vector<RecordedUpdates> recorded_updates() {
  std::ifstream file(GRAPHPIPE_SOURCE_DIR "/tests/data/optimizer_references.txt");
  std::vector<RecordedUpdates> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, dims;
    words >> kind;
    if (kind == "update") {
      RecordedUpdates& next = all.emplace_back();
      words >> next.optimizer >> next.kind >> dims;
      std::getline(words, next.flags);
      std::istringstream sizes(dims);
      for (std::string size; std::getline(sizes, size, 'x');) next.dims.push_back(std::stoll(size));
    } else if (kind == "after") {
      int64_t step = 0;
      words >> step;
      all.back().after[step] = numbers_in(words);
    }
  }
  return all;
}

graphpipe::wire::OptimizerOptions options_of(const std::string& flags) {
  std::istringstream words(flags);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  graphpipe::wire::RunOptions options;
  REQUIRE(graphpipe::wire::parse_run_options(arguments, options) == "");
  return options.optimizer;
}

}  // namespace

TEST_CASE("twenty updates are those of PyTorch and of the papers") {
  const c10::InferenceMode no_autograd;
  const std::vector<RecordedUpdates> all = recorded_updates();
  std::set<std::string> seen;
  for (const RecordedUpdates& c : all) {
    CAPTURE(c.optimizer);
    CAPTURE(c.flags);
    seen.insert(c.optimizer);
    const UpdateSettings settings = update_settings(c.optimizer, options_of(c.flags));
    Optimizer optimizer(c.optimizer, {settings.terms_of("w", c.dims.size(), c.kind == "table")});
    const auto count = static_cast<int64_t>(c.after.at(1).size());
    at::Tensor weight = recorded_start(c.dims, count);
    for (int64_t step = 0; step < 20; ++step) {
      optimizer.step(0, weight, recorded_gradient(c.dims, count, step));
      const auto found = c.after.find(step + 1);
      if (found == c.after.end()) continue;
      CAPTURE(step);
      for (size_t i = 0; i < found->second.size(); ++i)
        CHECK(std::abs(weight.const_data_ptr<float>()[i] - found->second[i]) <=
              2e-6 * std::max(1.0, std::abs(found->second[i])));
    }
  }
  for (const UpdateRule& rule : update_rules()) CHECK(seen.contains(rule.name));
}

TEST_CASE("every optimizer that plans may name has an update rule, and no other") {
  REQUIRE(update_rules().size() == graphpipe::wire::optimizers().size());
  for (const auto& entry : graphpipe::wire::optimizers()) {
    CAPTURE(entry.name);
    const UpdateRule& rule = update_rule(entry.name);
    CHECK(entry.normalises == (rule.scale != nullptr));
    CHECK(entry.updates_rows == (rule.skips_zero_rows != nullptr));
    // What memory is planned for holds the state of any weight; counters of a few bytes aside.
    UpdateTerms terms = update_settings(entry.name, {.momentum = 0.9}).terms_of("w", 2, false);
    for (const bool is_table : {false, true}) {
      terms.is_table = is_table;
      const at::Tensor weight = at::zeros({64, 64}, at::TensorOptions().dtype(at::kFloat));
      double bytes = 0;
      for (const NamedTensor& part : rule.fresh_state(weight, terms)) {
        CHECK(part.name.find('/') == std::string::npos);
        if (part.tensor.dim() > 0) bytes += static_cast<double>(part.tensor.nbytes());
      }
      CHECK(bytes <= entry.state_per_weight_byte * static_cast<double>(weight.nbytes()));
    }
  }
}

TEST_CASE("the bits of an update do not depend on the other parameters") {
  const c10::InferenceMode no_autograd;
  for (const UpdateRule& rule : update_rules()) {
    CAPTURE(rule.name);
    Optimizer many = busy(rule.name, 3);
    at::Tensor first = start(), second = start();
    train(many, 2, first, 0, 4);
    train(many, 0, second, 0, 4);
    const at::Tensor alone = trained(rule.name);
    CHECK(at::equal(first, alone));
    CHECK(at::equal(second, alone));
    CHECK_FALSE(at::equal(alone, start()));
  }
}

TEST_CASE("an optimizer goes on from a state that was taken as if it had not stopped") {
  const c10::InferenceMode no_autograd;
  for (const UpdateRule& rule : update_rules()) {
    CAPTURE(rule.name);
    Optimizer before = busy(rule.name), after = busy(rule.name), forgetful = busy(rule.name);
    at::Tensor weight = start();
    CHECK(before.state(0).empty());
    train(before, 0, weight, 0, 2);
    at::Tensor forgotten = weight.clone();
    ParameterState state = after.fresh_state(0, weight);
    REQUIRE(state.size() == before.state(0).size());
    for (size_t i = 0; i < state.size(); ++i) {
      CHECK(state[i].name == before.state(0)[i].name);
      REQUIRE(state[i].tensor.sizes() == before.state(0)[i].tensor.sizes());
      state[i].tensor.copy_(before.state(0)[i].tensor);
    }
    const bool remembers = !state.empty();
    after.take_state(0, std::move(state));
    train(after, 0, weight, 2, 4);
    CHECK(at::equal(weight, trained(rule.name)));
    train(forgetful, 0, forgotten, 2, 4);
    CHECK(at::equal(forgotten, weight) != remembers);
  }
}

TEST_CASE("the numbers of a parameter are the optimizer's, the run's, and its group's") {
  const auto numbers = [](const graphpipe::wire::OptimizerOptions& options, const char* name, size_t dimensions) {
    return update_settings("adamw", options).terms_of(name, dimensions, false).numbers;
  };
  CHECK(update_settings("sgd", {}).terms_of("w", 2, false).numbers.learning_rate == 0.01);
  CHECK(numbers({}, "w", 2).weight_decay == 0.01);
  CHECK(numbers({.weight_decay = 0.5}, "w", 2).weight_decay == 0.5);
  const graphpipe::wire::OptimizerOptions options =
      options_of("--lr 0.1 --no-decay norms-and-biases --group *.bias:lr=0.2 --group a.*:weight-decay=3");
  CHECK(numbers(options, "b.weight", 2).learning_rate == 0.1);
  CHECK(numbers(options, "b.weight", 2).weight_decay == 0.01);
  CHECK(numbers(options, "b.bias", 1).learning_rate == 0.2);
  CHECK(numbers(options, "b.bias", 1).weight_decay == 0);
  CHECK(numbers(options, "a.bias", 1).learning_rate == 0.2);
  CHECK(numbers(options, "a.bias", 1).weight_decay == 3);
  // A tied parameter has all its names.
  static constexpr const char* kAliases[] = {"head.weight", "a.table"};
  const OptimizerNumbers tied = update_settings("adamw", options).terms_of("table", 2, true, kAliases).numbers;
  CHECK(tied.learning_rate == 0.1);
  CHECK(tied.weight_decay == 3);
}

TEST_CASE("a group of parameters is updated as each of them alone, bit for bit") {
  const c10::InferenceMode no_autograd;
  for (const char* name : {"sgd", "adam", "adamw", "adagrad"}) {
    CAPTURE(name);
    const UpdateRule& rule = update_rule(name);
    REQUIRE((rule.update_group != nullptr));
    const UpdateTerms terms =
        update_settings(name, {.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1}).terms_of("w", 2, false);
    UpdateGroup group;
    std::vector<at::Tensor> alone;
    std::vector<ParameterState> states, states_alone;
    for (int i = 0; i < 3; ++i) {
      group.weights.push_back(start().mul(i + 1));
      alone.push_back(start().mul(i + 1));
      states.push_back(rule.fresh_state(alone.back(), terms));
      states_alone.push_back(rule.fresh_state(alone.back(), terms));
    }
    for (ParameterState& state : states) group.states.push_back(&state);
    for (int step = 0; step < 3; ++step) {
      group.gradients.clear();
      for (int i = 0; i < 3; ++i) group.gradients.push_back(gradient(step + i).view({1, 5}));
      const double rate = rule.update_group(group, terms);
      for (size_t i = 0; i < 3; ++i) {
        CHECK(rule.update(alone[i], group.gradients[i], states_alone[i], terms) == rate);
        CHECK(at::equal(group.weights[i], alone[i]));
        for (size_t part = 0; part < states[i].size(); ++part)
          CHECK(at::equal(states[i][part].tensor, states_alone[i][part].tensor));
      }
    }
  }
}

namespace {

// The most that an update takes beside what is there before.
int64_t bytes_of_update(Optimizer& optimizer, at::Tensor& weight, const at::Tensor& gradient) {
  const Optimizer::Update update{.index = 0, .weight = &weight, .gradient = &gradient};
  optimizer.step_all(std::span(&update, 1), 1);  // makes the state
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  optimizer.step_all(std::span(&update, 1), 1);
  return peak_tensor_bytes() - before;
}

}  // namespace

TEST_CASE("an update takes for itself what memory is planned for") {
  const c10::InferenceMode no_autograd;
  count_tensor_bytes();
  constexpr int64_t kRows = 1536, kColumns = 40, kScalars = 2048;
  for (const auto& entry : graphpipe::wire::optimizers()) {
    CAPTURE(std::string(entry.name));
    for (const auto& [rows, columns, is_table] :
         {std::tuple(kRows, kColumns, false), std::tuple(kColumns, kRows, false), std::tuple(kRows, kColumns, true),
          std::tuple(kRows, int64_t{0}, false)})
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const std::vector<int64_t> shape = columns > 0 ? std::vector{rows, columns} : std::vector{rows};
        CAPTURE(rows);
        CAPTURE(columns);
        CAPTURE(is_table);
        CAPTURE(type);
        const UpdateTerms terms = update_settings(entry.name, {}).terms_of("w", shape.size(), is_table);
        Optimizer optimizer(entry.name, {terms}, true);
        at::Tensor weight = at::zeros(shape, at::TensorOptions().dtype(type)).fill_(0.5);
        const at::Tensor gradient = at::zeros_like(weight).fill_(0.25);
        const graphpipe::wire::UpdatedWeight seen{.elements = weight.numel(),
                                                  .element = graphpipe::Bytes(weight.element_size()),
                                                  .rows = columns > 0 ? rows : 0,
                                                  .columns = columns,
                                                  .is_table = is_table};
        const int64_t planned = graphpipe::wire::update_scratch(entry, seen).count;
        const int64_t taken = bytes_of_update(optimizer, weight, gradient);
        CHECK(taken <= planned + kScalars);
        CHECK(taken >= planned - kScalars);
      }
  }
}

TEST_CASE("an update of rows takes for itself what memory is planned for, and counts once") {
  const c10::InferenceMode no_autograd;
  count_tensor_bytes();
  constexpr int64_t kRows = 9000, kLookUps = 1000, kColumns = 64;
  for (const auto& entry : graphpipe::wire::optimizers()) {
    if (!entry.updates_rows) continue;
    CAPTURE(std::string(entry.name));
    at::Tensor gradient;
    const at::Tensor ids = at::arange(kLookUps, at::TensorOptions().dtype(at::kLong)).mul_(2);
    add_table_rows(gradient, at::ones({kLookUps, kColumns}), ids, {kRows, kColumns}, -1);
    REQUIRE(gradient.is_sparse());
    Optimizer optimizer(entry.name, {update_settings(entry.name, {}).terms_of("w", 2, true)});
    Optimizer dense(entry.name, {update_settings(entry.name, {}).terms_of("w", 2, true)});
    at::Tensor weight = at::arange(kRows, at::kFloat).view({kRows, 1}).expand({kRows, kColumns}).contiguous();
    at::Tensor same = weight.clone();
    const int64_t taken = bytes_of_update(optimizer, weight, gradient);
    bytes_of_update(dense, same, dense_gradient(gradient));
    CHECK(at::equal(weight, same));
    const int64_t planned = graphpipe::wire::update_scratch(entry, {.elements = kRows * kColumns,
                                                                    .rows = kRows,
                                                                    .columns = kColumns,
                                                                    .is_table = true,
                                                                    .gathered_rows = kLookUps})
                                .count;
    CHECK(taken <= planned + 1024);
    CHECK(taken >= planned - 1024);
    const ParameterState state = optimizer.state(0), other = dense.state(0);
    for (size_t i = 0; i < state.size(); ++i) CHECK(at::equal(state[i].tensor, other[i].tensor));
  }
}

TEST_CASE("SGD is LibTorch's fused update, bit for bit") {
  const c10::InferenceMode no_autograd;
  for (const double weight_decay : {0.0, 0.1})
    for (const int64_t count : {1, 15, 16, 4103, 100'003}) {
      CAPTURE(weight_decay);
      CAPTURE(count);
      const UpdateTerms terms{.numbers = {.learning_rate = 0.01, .weight_decay = weight_decay}};
      at::Tensor weight = recorded_start({count}, count);
      const at::Tensor theirs = weight.clone();
      ParameterState state = update_rule("sgd").fresh_state(weight, terms);
      for (int64_t step = 0; step < 3; ++step) {
        const at::Tensor change = recorded_gradient({count}, count, step);
        update_rule("sgd").update(weight, change, state, terms);
        at::_fused_sgd_({theirs}, {change}, {}, weight_decay, /*momentum=*/0, /*lr=*/0.01, /*dampening=*/0,
                        /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false);
      }
      CHECK(at::equal(weight, theirs));
    }
}

TEST_CASE("clipping scales to the largest norm, and never up") {
  const c10::InferenceMode no_autograd;
  const std::vector<at::Tensor> squares{squared_norm(floats({3, 4})), squared_norm(floats({12}))};
  CHECK(squares[0].item<double>() == 25);
  CHECK(sum_of_numbers({}) == 0);
  const double norm = std::sqrt(sum_of_numbers(squares));
  CHECK(norm == 13);
  CHECK(3 * clip_factor(norm, 6.5) == doctest::Approx(1.4999998807907104).epsilon(1e-7));
  CHECK(clip_factor(norm, 20) == 1);
  CHECK(clip_factor(norm, 0) == 1);
}

TEST_CASE("the counting allocator counts what tensors hold") {
  count_tensor_bytes();
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  {
    const at::Tensor a = at::zeros({1000}, at::TensorOptions().dtype(at::kFloat));
    CHECK(tensor_bytes() == before + 4000);
    CHECK(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64 == 0);
    at::Tensor b = at::zeros({500}, at::TensorOptions().dtype(at::kDouble));
    b.resize_({1000});
    CHECK(tensor_bytes() == before + 12000);
  }
  CHECK(tensor_bytes() == before);
  CHECK(peak_tensor_bytes() >= before + 12000);
}

#include "driver/pipeline/order_file.h"

#include <algorithm>

#include "files/schedule_file.h"
#include "files/text_file.h"
#include "scheduler/policies/policies.h"

namespace graphpipe::driver {
namespace {

constexpr int64_t kMaxScheduleBytes = int64_t{256} << 20;

Result<Orders> parse_orders(const std::string& text) {
  Orders orders;
  if (files::is_schedule_binary(text)) {
    GP_TRY(files::ScheduleFile file, files::parse_schedule_binary(text));
    orders.schedule = std::move(file.schedule);
    return orders;
  }
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string_view rest = std::string_view(text).substr(begin);
  if (rest.starts_with("{") && files::is_schedule_lists(rest)) {
    GP_TRY(orders.schedule, files::parse_schedule_lists(rest));
    return orders;
  }
  // Its first field tells what it is.
  if (rest.starts_with("{") && rest.substr(0, 100).find("\"graphpipe.plan/") != std::string_view::npos)
    return Diagnostic{.code = Code::kMalformedFile,
                      .message = "this is a plan, not a schedule",
                      .hint = "`graphpipe simulate` checks the schedule of a plan; `--plan` takes the plan itself"};
  if (rest.starts_with("{")) {
    GP_TRY(files::ScheduleFile file, files::parse_schedule_file(text));
    orders.schedule = std::move(file.schedule);
    return orders;
  }
  if (rest.starts_with("schedule ") || rest.starts_with("slots") || rest.starts_with("device ")) {
    GP_TRY(orders.schedule, ir::parse_schedule(text));
    return orders;
  }
  if (text.find('\0') != std::string::npos)
    return Diagnostic{.code = Code::kMalformedFile,
                      .message = "this is no text, and no schedule in the form of Protocol Buffers",
                      .hint = "docs/files.md has the forms of a schedule"};
  GP_TRY(orders.csv, files::parse_schedule_csv(text));
  files::CsvOrders csv = files::orders_of(orders.csv);
  orders.schedule = std::move(csv.schedule);
  orders.cell_of = std::move(csv.cell_of);
  orders.numbers = scheduler::EdgeNumbers::kChain;
  return orders;
}

bool has_actions(const ir::Schedule& schedule) {
  return std::ranges::any_of(schedule.programs, [](const ir::Program& program) { return !program.actions.empty(); });
}

Diagnostic refused(const ir::Program& program, size_t position, const ir::Action& action, const std::string& why,
                   std::string hint) {
  return {.code = Code::kBadSchedule,
          .message = text("device ", program.device.index(), ", action ", position, " (", ir::print_action(action),
                          "): ", why),
          .hint = std::move(hint)};
}

/// The action for the stage's replica on this device. With `counts`, the action's range is the number of a micro-batch.
Result<ir::Action> placed(const ir::StageGraph& graph, const ir::Program& program, size_t position, bool counts) {
  ir::Action action = program.actions[position];
  if (action.stage < 0 || static_cast<size_t>(action.stage) >= graph.stages.size())
    return refused(program, position, action, text("the plan has ", graph.stages.size(), " stages"),
                   "write the order of the plan's stages, counted from 0");
  const ir::StageId stage(static_cast<size_t>(action.stage));
  const std::vector<ir::DeviceId>& devices = graph.stages[stage].choice.devices;
  const auto place = std::ranges::find(devices, program.device);
  if (place == devices.end())
    return refused(program, position, action, text("stage ", action.stage, " is not on this device"),
                   "write one line for each device, in the order of their numbers, with the stages that it holds");
  action.replica = static_cast<int32_t>(place - devices.begin());
  action.version = 0;
  if (!counts) return action;
  const int64_t number = action.range.first;
  if (number < ir::micro_batch_count(graph, stage)) action.range = ir::item_range(graph, stage, number, action.replica);
  else action.range = {};
  if (action.range.empty())
    return refused(program, position, program.actions[position],
                   text("replica ", action.replica, " of stage ", action.stage, " has no micro-batch ", number, " of ",
                        ir::micro_batch_count(graph, stage)),
                   "count the micro-batches of the stage from 0; of k replicas that take turns each has every k-th");
  return action;
}

}  // namespace

Result<Orders> read_orders(const std::string& path) {
  GP_TRY(const std::string text, files::read_file(path, kMaxScheduleBytes));
  Result<Orders> orders = parse_orders(text);
  if (orders.ok() && has_actions(orders->schedule)) return orders;
  Diagnostics problems = {
      {.code = Code::kMalformedFile, .message = "the schedule is empty", .hint = "write the actions of every device"}};
  if (!orders.ok()) problems = orders.problems();
  for (Diagnostic& problem : problems) problem.origin = ModelText(path);
  return problems;
}

Result<ir::Schedule> compute_order(const ir::StageGraph& graph, const Orders& orders) {
  ir::Schedule order{.policy = std::string(scheduler::kGivenOrder), .programs = {}, .slots = {}};
  const bool counts = !orders.cell_of.empty();
  for (const ir::Program& program : orders.schedule.programs) {
    ir::Program& out = order.programs.emplace_back(ir::Program{program.device, {}});
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const ir::Action& action = program.actions[i];
      if (action.op == ir::ActionOp::kStep && action.version > 1)
        return refused(program, i, action, "it updates weights within the step",
                       "leave updates out of the order; asynchronous policies make them");
      // The lowering adds recomputations, as it adds messages.
      if (!ir::is_compute(action.op) || action.op == ir::ActionOp::kRecompute) continue;
      GP_TRY(ir::Action own, placed(graph, program, i, counts));
      out.actions.push_back(own);
    }
  }
  return order;
}

}  // namespace graphpipe::driver

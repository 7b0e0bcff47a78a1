#include "files/plan.h"

#include <limits>
#include <set>

#include "files/cluster_message.h"
#include "files/schedule_message.h"
#include "files/schema/plan.pb.h"
#include "files/text_file.h"
#include "wire/optimizers.h"

namespace graphpipe::files {
namespace {

constexpr JsonLimits kPlanLimits = {.max_bytes = int64_t{256} << 20, .deepest = 64};
constexpr int32_t kMaxDegreeOfStage = 1 << 16;
constexpr std::string_view kHint = "correct the field, or make the plan again with `graphpipe plan`";

std::string_view replica_mode_name(ir::ReplicaMode mode) {
  return mode == ir::ReplicaMode::kSplit ? "split" : "round_robin";
}

void fill_stages(const ir::Plan& plan, schema::PlanFile& message) {
  for (const ir::StageChoice& choice : plan.assignment.choice) {
    schema::PlanStage& stage = *message.add_stages();
    for (ir::DeviceId device : choice.devices) stage.add_devices(narrow(static_cast<int64_t>(device.index())));
    stage.set_micro_batch(narrow(choice.micro_batch.count));
    stage.set_k(choice.k);
    stage.set_replica_mode(std::string(replica_mode_name(choice.mode)));
    stage.set_recompute(choice.recompute);
    stage.set_shard_optimizer_state(choice.shard_optimizer_state);
    if (choice.degree != 1) stage.set_degree(choice.degree);
  }
  const auto& stage_of = plan.assignment.stage_of;
  const auto& alternative = plan.assignment.alternative;
  GP_CHECK(plan.labels.empty() || plan.labels.size() == stage_of.size());
  GP_CHECK(alternative.empty() || alternative.size() == stage_of.size());
  for (ir::PlanNodeId node : ids<ir::PlanNodeId>(stage_of.size())) {
    GP_CHECK(stage_of[node].index() < plan.assignment.choice.size());
    schema::PlanStage& stage = *message.mutable_stages(static_cast<int>(stage_of[node].index()));
    stage.add_nodes(narrow(static_cast<int64_t>(node.index())));
    if (!plan.labels.empty()) stage.add_labels(encode_name(plan.labels[node]));
    if (!alternative.empty()) stage.add_alternatives(alternative[node]);
  }
}

void fill_loss(const ir::LossSpec& loss, schema::PlanFile& message) {
  if (loss.kind.empty()) return;
  schema::Loss& out = *message.mutable_loss();
  out.set_kind(loss.kind);
  out.set_output(encode_name(loss.output));
  out.set_label(encode_name(loss.label));
  for (const auto& [name, value] : loss.options) {
    schema::LossOption& option = *out.add_options();
    option.set_name(name);
    option.set_value(std::get<int64_t>(value));
  }
}

void fill_spec(const ir::ModelSpec& spec, schema::PlanFile& message) {
  message.set_model(encode_name(spec.path));
  for (const ir::SymbolBinding& binding : spec.bindings) {
    schema::SymbolBinding& out = *message.add_bindings();
    out.set_symbol(encode_name(binding.symbol));
    out.set_size(binding.size);
  }
  message.set_one_sample(spec.one_sample);
  message.set_accepts_losses(spec.accepts_losses);
  for (const ModelText& pattern : spec.freeze) message.add_freeze(encode_name(pattern));
  message.set_parameter_rules(encode_name(spec.parameter_rules));
  message.set_batch_norm(std::string(ir::batch_norm_name(spec.batch_norm)));
  message.set_dropout(spec.dropout);
  fill_loss(spec.loss, message);
  message.set_optimizer(spec.optimizer);
  message.set_contrastive(std::string(ir::sample_scope_name(spec.contrastive)));
  if (spec.precision != ir::Precision::kFloat32) message.set_precision(std::string(ir::precision_name(spec.precision)));
}

void fill_options(const ir::Plan& plan, schema::PlanFile& message) {
  message.set_schema("graphpipe.plan/1");
  fill_spec(plan.spec, message);
  message.set_model_digest(plan.model_digest);
  message.set_cluster_digest(plan.cluster_digest);
  message.set_profile_digest(plan.profile_digest);
  message.set_batch(narrow(plan.batch.count));
  if (plan.drain_every != 1) message.set_drain_every(narrow(plan.drain_every));
  if (plan.execution != ir::Execution::kGraph) message.set_execute(std::string(ir::execution_name(plan.execution)));
  message.set_seed(plan.seed);
  message.set_threads(plan.threads);
  message.set_planner(plan.planner);
  message.set_policy(plan.policy);
  message.set_profile(encode_name(plan.profile));
  if (!plan.cluster.devices.empty()) fill_message(plan.cluster, *message.mutable_cluster());
}

class PlanReader {
 public:
  explicit PlanReader(const schema::PlanFile& message) : message_(message), problems_(Code::kBadPlan, kHint) {}

  Result<ir::Plan> read() {
    read_options();
    read_spec();
    read_loss();
    for (int s = 0; s < message_.stages_size(); ++s) read_choice(message_.stages(s), text("stages[", s, "]"));
    if (message_.stages_size() == 0) problems_.add("stages", "is empty: a plan has at least one stage");
    read_nodes();
    if (message_.has_schedule()) plan_.schedule = schedule_of(message_.schedule(), "schedule", problems_);
    if (!problems_.empty()) return problems_.take();
    return std::move(plan_);
  }

 private:
  void read_options() {
    problems_.need_digest("model_digest", plan_.model_digest = message_.model_digest());
    problems_.need_digest("cluster_digest", plan_.cluster_digest = message_.cluster_digest());
    problems_.need_digest("profile_digest", plan_.profile_digest = message_.profile_digest());
    plan_.spec.optimizer = message_.optimizer();
    if (wire::find_optimizer(plan_.spec.optimizer) == nullptr)
      problems_.add("optimizer", "must be one of ", wire::optimizer_names(), ", is ",
                    quoted(ModelText(message_.optimizer())));
    const auto execution = ir::execution_of_name(message_.has_execute() ? message_.execute() : "graph");
    if (execution) plan_.execution = *execution;
    else problems_.add("execute", "must be graph or chain, is ", quoted(ModelText(message_.execute())));
    problems_.need_range("batch", message_.batch(), 1, kMaxOfMessage);
    plan_.batch = Samples(message_.batch());
    if (message_.has_drain_every())
      problems_.need_range("drain_every", plan_.drain_every = message_.drain_every(), int64_t{1}, ir::kMaxDrainEvery);
    plan_.seed = message_.seed();
    problems_.need_range("threads", message_.threads(), 1, kMaxThreads);
    plan_.threads = message_.threads();
    problems_.need_name("planner", plan_.planner = message_.planner());
    problems_.need_name("policy", plan_.policy = message_.policy());
    plan_.profile = decode_name(message_.profile());
    if (const std::string& schema = message_.cluster().schema(); !schema.empty() && schema != "graphpipe.cluster/1")
      problems_.add("cluster.schema", "must be graphpipe.cluster/1, is ", quoted(ModelText(schema)));
    if (message_.has_cluster()) plan_.cluster = cluster_of(message_.cluster(), "cluster.", problems_);
  }

  void read_spec() {
    ir::ModelSpec& spec = plan_.spec;
    spec.path = decode_name(message_.model());
    for (int i = 0; i < message_.bindings_size(); ++i) {
      const schema::SymbolBinding& binding = message_.bindings(i);
      problems_.need_range(text("bindings[", i, "].size"), binding.size(), int64_t{0}, int64_t{1} << 48);
      spec.bindings.push_back({.symbol = decode_name(binding.symbol()), .size = binding.size()});
    }
    spec.one_sample = message_.one_sample();
    spec.accepts_losses = message_.accepts_losses();
    for (const std::string& pattern : message_.freeze()) spec.freeze.push_back(decode_name(pattern));
    spec.parameter_rules = decode_name(message_.parameter_rules());
    const auto batch_norm = ir::batch_norm_of_name(message_.batch_norm());
    if (batch_norm) spec.batch_norm = *batch_norm;
    else
      problems_.add("batch_norm", "must be train, eval, file or micro-batch, is ",
                    quoted(ModelText(message_.batch_norm())));
    const auto scope =
        message_.has_contrastive() ? ir::sample_scope_of_name(message_.contrastive()) : ir::SampleScope::kBatch;
    if (scope && *scope != ir::SampleScope::kEach) spec.contrastive = *scope;
    else problems_.add("contrastive", "must be batch or micro-batch, is ", quoted(ModelText(message_.contrastive())));
    spec.dropout = message_.dropout();
    const auto precision = ir::precision_of_name(message_.has_precision() ? message_.precision() : "float32");
    if (precision) spec.precision = *precision;
    else problems_.add("precision", "must be float32, bf16 or fp16, is ", quoted(ModelText(message_.precision())));
  }

  void read_loss() {
    if (!message_.has_loss()) return;
    const schema::Loss& given = message_.loss();
    ir::LossSpec& loss = plan_.spec.loss;
    loss.kind = given.kind();
    if (loss.kind.empty()) problems_.add("loss.kind", "is empty: leave out `loss` where nothing is trained");
    loss.output = decode_name(given.output());
    loss.label = decode_name(given.label());
    for (int i = 0; i < given.options_size(); ++i) {
      const std::string place = text("loss.options[", i, "].name");
      const std::string& name = given.options(i).name();
      if (name.empty()) problems_.add(place, "is empty");
      if (loss.options.has(name)) problems_.add(place, "is an option that stands here twice");
      loss.options.set(name, given.options(i).value());
    }
  }

  void read_choice(const schema::PlanStage& stage, const std::string& path) {
    ir::StageChoice choice;
    if (stage.devices_size() == 0) problems_.add(path + ".devices", "is empty: a stage has at least one device");
    std::set<int32_t> devices;
    for (int i = 0; i < stage.devices_size(); ++i) {
      const std::string place = text(path, ".devices[", i, "]");
      problems_.need_range(place, stage.devices(i), 0, kMaxOfMessage);
      if (!devices.insert(stage.devices(i)).second) problems_.add(place, "is a device that stands here twice");
      choice.devices.emplace_back(static_cast<size_t>(stage.devices(i)));
    }
    problems_.need_range(path + ".micro_batch", stage.micro_batch(), 1, std::max(1, message_.batch()));
    choice.micro_batch = Samples(stage.micro_batch());
    if (stage.has_k()) problems_.need_range(path + ".k", choice.k = stage.k(), 1, kMaxOfMessage);
    const std::string mode = stage.has_replica_mode() ? stage.replica_mode() : "split";
    if (mode == "round_robin") choice.mode = ir::ReplicaMode::kRoundRobin;
    else if (mode != "split") problems_.add(path + ".replica_mode", "must be split or round_robin");
    choice.recompute = stage.recompute();
    choice.shard_optimizer_state = stage.shard_optimizer_state();
    if (stage.has_degree())
      problems_.need_range(path + ".degree", choice.degree = stage.degree(), 1, kMaxDegreeOfStage);
    plan_.assignment.choice.push_back(std::move(choice));
  }

  // Node ids are dense, so none is as large as their number: no id decides how much memory is taken.
  void read_nodes() {
    size_t count = 0;
    bool labelled = false, has_alternatives = false;
    for (const schema::PlanStage& stage : message_.stages()) {
      count += static_cast<size_t>(stage.nodes_size());
      labelled = labelled || stage.labels_size() > 0;
      has_alternatives = has_alternatives || stage.alternatives_size() > 0;
    }
    plan_.assignment.stage_of.resize(count);
    if (labelled) plan_.labels.resize(count);
    if (has_alternatives) plan_.assignment.alternative.resize(count, 0);
    for (int s = 0; s < message_.stages_size(); ++s) {
      const schema::PlanStage& stage = message_.stages(s);
      const std::string path = text("stages[", s, "]");
      if (stage.nodes_size() == 0) problems_.add(path + ".nodes", "is empty: a stage has at least one node");
      const bool has_labels = labelled && stage.labels_size() == stage.nodes_size();
      if (labelled && !has_labels)
        problems_.add(path + ".labels", "has ", stage.labels_size(), " labels for ", stage.nodes_size(), " nodes");
      if (stage.alternatives_size() > 0 && stage.alternatives_size() != stage.nodes_size())
        problems_.add(path + ".alternatives", "has ", stage.alternatives_size(), " numbers for ", stage.nodes_size(),
                      " nodes");
      for (int i = 0; i < stage.nodes_size(); ++i) read_node(stage, s, i, has_labels, text(path, ".nodes[", i, "]"));
    }
  }

  void read_node(const schema::PlanStage& stage, int s, int i, bool has_label, const std::string& path) {
    const size_t count = plan_.assignment.stage_of.size();
    if (stage.nodes(i) < 0 || static_cast<size_t>(stage.nodes(i)) >= count) {
      problems_.add(path, "is ", stage.nodes(i), ", but the stages have ", count, " nodes, numbered from 0");
      return;
    }
    const ir::PlanNodeId node(static_cast<size_t>(stage.nodes(i)));
    ir::StageId& stage_of = plan_.assignment.stage_of[node];
    if (stage_of.valid()) problems_.add(path, "node ", node, " is in stage ", stage_of, " already");
    stage_of = ir::StageId(static_cast<size_t>(s));
    if (has_label) plan_.labels[node] = decode_name(stage.labels(i));
    if (stage.alternatives_size() != stage.nodes_size()) return;
    const int32_t alternative = stage.alternatives(i);
    problems_.need_range(text("stages[", s, "].alternatives[", i, "]"), alternative, 0, kMaxOfMessage);
    plan_.assignment.alternative[node] = alternative;
  }

  const schema::PlanFile& message_;
  FieldProblems problems_;
  ir::Plan plan_;
};

schema::PlanFile plan_message(const ir::Plan& plan) {
  schema::PlanFile message;
  fill_options(plan, message);
  fill_stages(plan, message);
  if (plan.schedule) fill_message(*plan.schedule, *message.mutable_schedule());
  return message;
}

}  // namespace

std::string print_plan(const ir::Plan& plan) { return print_message(plan_message(plan)); }

std::string print_plan_binary(const ir::Plan& plan) { return print_binary_message(plan_message(plan)); }

Result<ir::Plan> parse_plan(std::string_view text) {
  schema::PlanFile message;
  GP_TRY_VOID(parse_message(text, "graphpipe.plan", 1, kPlanLimits, message));
  return PlanReader(message).read();
}

Result<ir::Plan> read_plan(const std::string& path) {
  GP_TRY(const std::string text, read_file(path, kPlanLimits.max_bytes));
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || text[begin] != '{')
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(path),
                      .message = "the file is no plan, which begins with a brace",
                      .hint = "a model is planned first: graphpipe plan MODEL -o PLAN"};
  Result<ir::Plan> plan = parse_plan(text);
  if (!plan.ok()) return with_origin(plan.problems(), path);
  return plan;
}

Status write_plan(const std::string& path, const ir::Plan& plan) { return write_file(path, print_plan(plan)); }

}  // namespace graphpipe::files

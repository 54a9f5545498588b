#include "grammar/probe.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "base/sha256.h"
#include "base/utf8.h"
#include "grammar/base64.h"
#include "grammar/cache.h"
#include "grammar/jump_ahead.h"
#include "grammar/matcher.h"
#include "grammar/probe_requests.h"
#include "grammar/warm_up.h"

namespace deepinfer::grammar {

namespace {

/// A failed request: the code of the answer's error, and what else it carries.
struct Failure {
  std::string code;
  std::string message;
  std::optional<std::int64_t> at = {};
};

using Answer = std::expected<json::Object, Failure>;

std::unexpected<Failure> bad_request(std::string message) { return std::unexpected(Failure{"bad_request", std::move(message)}); }

double rounded(double microseconds) { return static_cast<double>(static_cast<std::int64_t>(microseconds * 100 + 0.5)) / 100; }

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::string mask_digest(std::span<const std::uint32_t> mask) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    for (std::uint32_t word = mask[i]; word != 0; word &= word - 1) {
      const auto id = static_cast<std::uint32_t>(i * 32) + static_cast<std::uint32_t>(std::countr_zero(word));
      for (int shift = 0; shift < 32; shift += 8) {
        bytes.push_back(static_cast<std::byte>(id >> shift));
      }
    }
  }
  return sha256(bytes);
}

bool has_bit(std::span<const std::uint32_t> mask, TokenId id) {
  const auto index = static_cast<std::size_t>(id.value);
  return id.value >= 0 && index / 32 < mask.size() && (mask[index / 32] >> (index % 32) & 1) != 0;
}

}  // namespace

class ProbeSession::State {
 public:
  State(const tokenizer::Tokenizer& tokens, ProbeOptions settings)
      : tokenizer(tokens), options(std::move(settings)), cache(options.limits.cache_bytes) {
    const auto begin = std::chrono::steady_clock::now();
    vocabulary = std::make_shared<const Vocabulary>(make_vocabulary(tokenizer, options.vocab_size));
    if (options.end_ids.empty()) {
      if (const auto end = tokenizer.find("<｜end▁of▁sentence｜>")) {
        options.end_ids.push_back(*end);
      }
    }
    startup_ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
  }

  double now_us() const {
    timespec at{};
    clock_gettime(options.clock == ProbeClock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &at);
    return static_cast<double>(at.tv_sec) * 1e6 + static_cast<double>(at.tv_nsec) / 1e3;
  }

  Answer dispatch(const json::Value& request, const std::string& op) {
    using Handler = Answer (State::*)(const json::Value&);
    static const std::map<std::string, Handler, std::less<>> kHandlers = {{"compile", &State::compile_op},
                                                                          {"wait", &State::wait},
                                                                          {"cancel", &State::cancel},
                                                                          {"match", &State::match},
                                                                          {"mask", &State::mask},
                                                                          {"walk", &State::walk},
                                                                          {"draft", &State::draft},
                                                                          {"rollback", &State::rollback},
                                                                          {"forced", &State::forced},
                                                                          {"batch", &State::batch},
                                                                          {"release", &State::release},
                                                                          {"stats", &State::stats},
                                                                          {"clear_cache", &State::clear_cache}};
    const auto handler = kHandlers.find(op);
    return handler == kHandlers.end() ? bad_request("unknown op \"" + op + "\"") : (this->*handler->second)(request);
  }

  const tokenizer::Tokenizer& tokenizer;
  ProbeOptions options;
  std::shared_ptr<const Vocabulary> vocabulary;
  std::int64_t startup_ms = 0;

 private:
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  /// A compile that runs on its own thread; its destructor calls it off.
  struct Pending {
    std::atomic<bool> is_cancelled{false};
    json::Object answer;
    Grammar grammar;
    std::jthread thread;
    ~Pending() { is_cancelled = true; }
  };

  struct CompileRequest {
    std::string id;
    std::optional<CompositeJob> composite;  ///< kinds dsml_tools and composite
    GrammarKind kind = GrammarKind::json_schema;
    std::string text;
    CompileOptions options;
    Limits limits;
    bool uses_cache = true;
  };

  std::expected<CompileRequest, Failure> read_compile(const json::Value& request) {
    CompileRequest out;
    out.limits = options.limits;
    const json::Value* id = request.find("id");
    out.id = id != nullptr && id->as_string() != nullptr ? *id->as_string() : "g" + std::to_string(++made_ids_);
    const json::Value* kind = request.find("kind");
    const std::string kind_name = kind != nullptr && kind->as_string() != nullptr ? *kind->as_string() : "";
    if (kind_name == "dsml_tools" || kind_name == "composite") {
      Compiled<CompositeJob> job = composite_from_json(request, kind_name == "composite" ? CompositeForm::spec : CompositeForm::tools_text);
      if (!job) {
        return bad_request(job.error().message);
      }
      if (const std::optional<TokenId> dsml = tokenizer.find("｜DSML｜")) {
        job->dsml_token = *dsml;
      }
      job->limits = out.limits;
      out.composite = std::move(*job);
      out.text = kind_name;
      return out;
    }
    const Compiled<GrammarKind> known = kind_from_name(kind_name);
    if (!known) {
      return std::unexpected(Failure{"bad_kind", known.error().message});
    }
    out.kind = *known;
    const json::Value* text = request.find("grammar");
    const bool is_absent = text == nullptr || text->is_null();
    if (is_absent ? out.kind != GrammarKind::json_object : text->as_string() == nullptr) {
      return bad_request("grammar must be a string");
    }
    out.text = is_absent ? "" : *text->as_string();
    const Result<CompileOptions> read = options_from_json(request.find("options"));
    if (!read) {
      return bad_request(read.error().message);
    }
    out.options = *read;
    const json::Value* asked = request.find("options");
    const json::Value* uses_cache = asked != nullptr ? asked->find("cache") : nullptr;
    out.uses_cache = uses_cache == nullptr || uses_cache->as_bool() == nullptr || *uses_cache->as_bool();
    if (const json::Value* timeout = request.find("timeout_ms"); timeout != nullptr && timeout->as_number() != nullptr) {
      out.limits.compile_time = std::chrono::milliseconds(timeout->as_number()->as_int64().value_or(0));
    }
    return out;
  }

  /// The answer, and the grammar when there is one.
  std::pair<json::Object, Grammar> run_compile(const CompileRequest& request, const std::atomic<bool>* is_cancelled) {
    const CompileJob job{
        .kind = request.kind, .text = request.text, .options = request.options, .limits = request.limits, .is_cancelled = is_cancelled};
    const double begin = now_us();
    const std::string key = cache_key(job);
    const bool uses_cache = request.uses_cache && !request.composite;
    std::optional<CompileResult> result;
    if (uses_cache) {
      result = cache.find(key);
    }
    const bool is_cached = result.has_value();
    if (!is_cached && request.composite) {
      CompositeJob composite = *request.composite;
      composite.is_cancelled = is_cancelled;
      result = compile_composite(composite);
    } else if (!is_cached) {
      result = compile(job);
    }
    if (!is_cached && *result) {
      fill_first_masks(**result, vocabulary);
    }
    const double took = rounded(now_us() - begin);
    if (!is_cached && uses_cache) {
      cache.put(key, *result);
    }
    json::Object answer{{"id", request.id}, {"ok", result->has_value()}, {"compile_us", took}};
    if (!*result) {
      answer.set("error", error_json(result->error()));
      return {std::move(answer), nullptr};
    }
    answer.set("bytes", static_cast<std::uint64_t>((**result)->bytes()));
    answer.set("cached", is_cached);
    if (!(**result)->warnings().empty()) {
      json::Array warnings;
      for (const std::string& warning : (**result)->warnings()) {
        warnings.emplace_back(warning);
      }
      answer.set("warnings", std::move(warnings));
    }
    return {std::move(answer), **result};
  }

  Answer compile_op(const json::Value& request) {
    auto read = read_compile(request);
    if (!read) {
      return std::unexpected(read.error());
    }
    const json::Value* is_async = request.find("async");
    if (is_async != nullptr && is_async->as_bool() != nullptr && *is_async->as_bool()) {
      auto pending = std::make_unique<Pending>();
      Pending* state = pending.get();
      pending->thread =
          std::jthread([this, state, job = *read] { std::tie(state->answer, state->grammar) = run_compile(job, &state->is_cancelled); });
      pending_[read->id] = std::move(pending);
      return json::Object{{"id", read->id}, {"pending", true}};
    }
    auto [answer, grammar] = run_compile(*read, nullptr);
    keep(read->id, std::move(grammar));
    return std::move(answer);
  }

  void keep(const std::string& id, Grammar grammar) {
    grammars_.erase(id);
    if (grammar != nullptr) {
      grammars_[id] = std::move(grammar);
    }
  }

  std::expected<std::string, Failure> id_of(const json::Value& request) const {
    const json::Value* id = request.find("id");
    if (id == nullptr || id->as_string() == nullptr) {
      return bad_request("id must be a string");
    }
    return *id->as_string();
  }

  Answer wait(const json::Value& request) {
    const auto id = id_of(request);
    const auto place = id ? pending_.find(*id) : pending_.end();
    if (place == pending_.end()) {
      return std::unexpected(Failure{"bad_id", "no compile is pending under this id"});
    }
    place->second->thread.join();
    json::Object answer = std::move(place->second->answer);
    keep(*id, std::move(place->second->grammar));
    pending_.erase(place);
    return answer;
  }

  Answer cancel(const json::Value& request) {
    const auto id = id_of(request);
    const auto place = id ? pending_.find(*id) : pending_.end();
    if (place == pending_.end()) {
      return std::unexpected(Failure{"bad_id", "no compile is pending under this id"});
    }
    place->second->is_cancelled = true;
    return json::Object{{"id", *id}, {"ok", true}};
  }

  /// A matcher behind request's grammar with `prefix_ids` taken.
  std::expected<Matcher, Failure> matcher_for(const json::Value& request) {
    const auto id = id_of(request);
    if (!id) {
      return std::unexpected(id.error());
    }
    const auto grammar = grammars_.find(*id);
    if (grammar == grammars_.end()) {
      return std::unexpected(Failure{"bad_id", "no grammar \"" + *id + "\""});
    }
    const auto prefix = ids_from_json(request, "prefix_ids");
    if (!prefix) {
      return bad_request(prefix.error().message);
    }
    Matcher matcher(grammar->second, vocabulary, {.end_ids = options.end_ids, .trigger_ids = {}, .bound_id = {}});
    for (std::size_t i = 0; i < prefix->size(); ++i) {
      if (!matcher.accept((*prefix)[i])) {
        return matcher.is_exhausted()
                   ? std::unexpected(limit_failure())
                   : std::unexpected(Failure{"bad_prefix", "the grammar refuses an id of prefix_ids", static_cast<std::int64_t>(i)});
      }
    }
    return matcher;
  }

  static Failure limit_failure() { return {"limit", "the grammar needs more parser items or automaton states than the limit"}; }

  Answer match(const json::Value& request) {
    std::expected<Matcher, Failure> matcher = matcher_for(request);
    if (!matcher) {
      return std::unexpected(matcher.error());
    }
    std::string text;
    if (const json::Value* given = request.find("text"); given != nullptr && given->as_string() != nullptr) {
      text = *given->as_string();
    } else if (const json::Value* coded = request.find("text_b64"); coded != nullptr && coded->as_string() != nullptr) {
      const Result<std::string> bytes = from_base64(*coded->as_string());
      if (!bytes) {
        return bad_request("text_b64 is not base64");
      }
      text = *bytes;
    } else {
      return bad_request("text must be a string");
    }
    const double begin = now_us();
    const Matcher::ByteMatch out = matcher->match_bytes(text);
    const double took = rounded(now_us() - begin);
    if (matcher->is_exhausted()) {
      return std::unexpected(limit_failure());
    }
    const bool is_accepted = out.accepted == text.size();
    return json::Object{{"id", *id_of(request)},
                        {"accepted", is_accepted},
                        {"complete", out.complete},
                        {"fail_at", is_accepted ? json::Value() : json::Value(static_cast<std::uint64_t>(out.accepted))},
                        {"us", took}};
  }

  bool end_allowed(std::span<const std::uint32_t> words) const {
    return std::ranges::any_of(options.end_ids, [&](TokenId id) { return has_bit(words, id); });
  }

  Answer mask(const json::Value& request) {
    std::expected<Matcher, Failure> matcher = matcher_for(request);
    if (!matcher) {
      return std::unexpected(matcher.error());
    }
    std::vector<std::uint32_t> words(vocabulary->mask_words());
    const double begin = now_us();
    matcher->fill_mask(words);
    const double took = rounded(now_us() - begin);
    if (matcher->is_exhausted()) {
      return std::unexpected(limit_failure());
    }
    std::uint64_t count = 0;
    for (const std::uint32_t word : words) {
      count += static_cast<std::uint64_t>(std::popcount(word));
    }
    json::Object answer{{"id", *id_of(request)},
                        {"allowed_count", count},
                        {"sha256", mask_digest(words)},
                        {"eos_allowed", end_allowed(words)},
                        {"us", took}};
    const json::Value* wants_bits = request.find("bitmask");
    if (wants_bits != nullptr && wants_bits->as_bool() != nullptr && *wants_bits->as_bool()) {
      std::vector<std::uint8_t> bytes;
      for (const std::uint32_t word : words) {
        for (int shift = 0; shift < 32; shift += 8) {
          bytes.push_back(static_cast<std::uint8_t>(word >> shift));
        }
      }
      answer.set("bitmask", to_base64(bytes));
    }
    return answer;
  }

  Answer walk(const json::Value& request) {
    std::expected<Matcher, Failure> matcher = matcher_for(request);
    const auto ids = ids_from_json(request, "ids");
    if (!matcher || !ids) {
      return matcher ? bad_request(ids.error().message) : std::unexpected(matcher.error());
    }
    const json::Value* wants_digest = request.find("sha256");
    const bool has_digests = wants_digest != nullptr && wants_digest->as_bool() != nullptr && *wants_digest->as_bool();
    std::vector<std::uint32_t> words(vocabulary->mask_words());
    json::Array mask_us;
    json::Array accept_us;
    json::Array allowed;
    json::Array digests;
    bool is_end_allowed = false;
    for (std::size_t i = 0; i <= ids->size(); ++i) {
      double begin = now_us();
      matcher->fill_mask(words);
      mask_us.emplace_back(rounded(now_us() - begin));
      if (matcher->is_exhausted()) {
        return std::unexpected(limit_failure());
      }
      if (has_digests) {
        digests.emplace_back(mask_digest(words));
      }
      if (i == ids->size()) {
        is_end_allowed = end_allowed(words);
        break;
      }
      const bool is_allowed = has_bit(words, (*ids)[i]);
      allowed.emplace_back(is_allowed);
      if (!is_allowed) {
        break;
      }
      begin = now_us();
      const bool is_taken = matcher->accept((*ids)[i]);
      accept_us.emplace_back(rounded(now_us() - begin));
      if (!is_taken) {
        return std::unexpected(matcher->is_exhausted() ? limit_failure()
                                                       : Failure{"internal", "the matcher refused an id its mask allowed"});
      }
    }
    json::Object answer{{"id", *id_of(request)},
                        {"mask_us", std::move(mask_us)},
                        {"accept_us", std::move(accept_us)},
                        {"allowed", std::move(allowed)},
                        {"eos_allowed", is_end_allowed}};
    if (has_digests) {
      answer.set("sha256", std::move(digests));
    }
    return answer;
  }

  Answer draft(const json::Value& request) {
    std::expected<Matcher, Failure> matcher = matcher_for(request);
    const auto ids = ids_from_json(request, "draft_ids");
    if (!matcher || !ids) {
      return matcher ? bad_request(ids.error().message) : std::unexpected(matcher.error());
    }
    std::vector<std::vector<std::uint32_t>> rows;
    std::size_t valid = 0;
    const double begin = now_us();
    for (;; ++valid) {
      rows.emplace_back(vocabulary->mask_words());
      matcher->fill_mask(rows.back());
      if (valid == ids->size() || !matcher->accept((*ids)[valid])) {
        break;
      }
    }
    matcher->rollback(valid);
    const double took = rounded(now_us() - begin);
    if (matcher->is_exhausted()) {
      return std::unexpected(limit_failure());
    }
    json::Array digests;
    for (const auto& row : rows) {
      digests.emplace_back(mask_digest(row));
    }
    return json::Object{
        {"id", *id_of(request)}, {"valid", static_cast<std::uint64_t>(valid)}, {"sha256", std::move(digests)}, {"us", took}};
  }

  Answer rollback(const json::Value& request) {
    std::expected<Matcher, Failure> matcher = matcher_for(request);
    const auto ids = ids_from_json(request, "ids");
    if (!matcher || !ids) {
      return matcher ? bad_request(ids.error().message) : std::unexpected(matcher.error());
    }
    const json::Value* back = request.find("back");
    const auto count = back != nullptr && back->as_number() != nullptr ? back->as_number()->as_int64() : std::nullopt;
    if (!count || *count < 0 || static_cast<std::size_t>(*count) > ids->size()) {
      return bad_request("back must be a count of at most the number of ids");
    }
    std::vector<std::uint32_t> before(vocabulary->mask_words());
    std::vector<std::uint32_t> after(vocabulary->mask_words());
    const std::size_t kept = ids->size() - static_cast<std::size_t>(*count);
    for (std::size_t i = 0; i <= ids->size(); ++i) {
      if (i == kept) {
        matcher->fill_mask(before);
      }
      if (i < ids->size() && !matcher->accept((*ids)[i])) {
        return std::unexpected(Failure{"bad_prefix", "the grammar refuses an id of ids", static_cast<std::int64_t>(i)});
      }
    }
    const double begin = now_us();
    matcher->rollback(static_cast<std::size_t>(*count));
    const double took = rounded(now_us() - begin);
    matcher->fill_mask(after);
    return json::Object{{"id", *id_of(request)},
                        {"equal", before == after},
                        {"sha256_before", mask_digest(before)},
                        {"sha256_after", mask_digest(after)},
                        {"us", took}};
  }

  Answer forced(const json::Value& request);
  Answer batch(const json::Value& request);

  Answer release(const json::Value& request) {
    const auto id = id_of(request);
    if (!id || grammars_.erase(*id) == 0) {
      return std::unexpected(Failure{"bad_id", "no such grammar"});
    }
    return json::Object{{"id", *id}, {"ok", true}};
  }

  Answer stats(const json::Value&) {
    std::uint64_t bytes = 0;
    for (const auto& [id, grammar] : grammars_) {
      bytes += grammar->bytes();
    }
    return json::Object{{"grammars", static_cast<std::uint64_t>(grammars_.size())},
                        {"bytes", bytes},
                        {"cache_bytes", static_cast<std::uint64_t>(cache.bytes())},
                        {"rss_bytes", static_cast<std::uint64_t>(resident_bytes())}};
  }

  Answer clear_cache(const json::Value&) {
    cache.clear();
    return json::Object{{"ok", true}};
  }

  CompileCache cache;
  std::map<std::string, Grammar, std::less<>> grammars_;
  std::map<std::string, std::unique_ptr<Pending>, std::less<>> pending_;
  std::uint64_t made_ids_ = 0;
};

Answer ProbeSession::State::forced(const json::Value& request) {
  std::expected<Matcher, Failure> matcher = matcher_for(request);
  if (!matcher) {
    return std::unexpected(matcher.error());
  }
  const double begin = now_us();
  const std::string text = matcher->forced();
  const std::vector<TokenId> ids = forced_ids(tokenizer, *vocabulary, text);
  const double took = rounded(now_us() - begin);
  json::Array list;
  for (const TokenId id : ids) {
    list.emplace_back(id.value);
  }
  json::Object answer{{"id", *id_of(request)}, {"ids", std::move(list)}};
  if (utf8::is_valid(text)) {
    answer.set("text", text);
  } else {
    answer.set("text_b64", to_base64({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}));
  }
  answer.set("us", took);
  return answer;
}

Answer ProbeSession::State::batch(const json::Value& request) {
  const json::Value* items = request.find("items");
  if (items == nullptr || items->as_array() == nullptr) {
    return bad_request("items must be a list");
  }
  std::vector<Matcher> matchers;
  for (const json::Value& item : *items->as_array()) {
    std::expected<Matcher, Failure> matcher = matcher_for(item);
    if (!matcher) {
      return std::unexpected(matcher.error());
    }
    matchers.push_back(std::move(*matcher));
  }
  std::vector<std::vector<std::uint32_t>> rows(matchers.size(), std::vector<std::uint32_t>(vocabulary->mask_words()));
  const double begin = now_us();
  {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < matchers.size(); i = next++) {
        matchers[i].fill_mask(rows[i]);
      }
    };
    std::vector<std::jthread> threads;
    for (std::int32_t i = 1; i < options.num_threads; ++i) {
      threads.emplace_back(work);
    }
    work();
  }
  const double took = rounded(now_us() - begin);
  json::Array digests;
  for (const auto& row : rows) {
    digests.emplace_back(mask_digest(row));
  }
  return json::Object{{"sha256", std::move(digests)}, {"us", took}};
}

ProbeSession::ProbeSession(const tokenizer::Tokenizer& tokenizer, ProbeOptions options)
    : state_(std::make_unique<State>(tokenizer, std::move(options))) {}
ProbeSession::~ProbeSession() = default;
ProbeSession::ProbeSession(ProbeSession&&) noexcept = default;

std::string ProbeSession::ready_line() const {
  json::Array ends;
  for (const TokenId id : state_->options.end_ids) {
    ends.emplace_back(id.value);
  }
  return json::to_text(json::Object{{"ready", true},
                                    {"vocab_size", state_->vocabulary->num_rows()},
                                    {"eos_ids", std::move(ends)},
                                    {"version", state_->options.version},
                                    {"startup_ms", state_->startup_ms}});
}

std::optional<std::string> ProbeSession::answer(std::string_view line) {
  const Result<json::Value> request = json::parse(line);
  if (!request || request->as_object() == nullptr) {
    const std::string message = request ? "a request is a JSON object" : request.error().message;
    return json::to_text(json::Object{{"error", json::Object{{"code", "bad_request"}, {"message", message}}}});
  }
  const json::Value* op = request->find("op");
  const std::string name = op != nullptr && op->as_string() != nullptr ? *op->as_string() : "";
  if (name == "quit") {
    return std::nullopt;
  }
  Answer out = state_->dispatch(*request, name);
  if (!out) {
    json::Object error{{"code", out.error().code}, {"message", out.error().message}};
    if (out.error().at) {
      error.set("at", *out.error().at);
    }
    out = json::Object{{"error", std::move(error)}};
    if (const json::Value* id = request->find("id")) {
      out->set("id", *id);
    }
  }
  if (const json::Value* seq = request->find("seq")) {
    out->set("seq", *seq);
  }
  return json::to_text(*out);
}

}  // namespace deepinfer::grammar

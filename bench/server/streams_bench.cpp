// Concurrent streams through the whole server: sockets, parsing, rendering, engine, sampling, reply parsing, server-sent events. Only the
// model computes nothing. One thread reads all streams and measures for each how long its first byte and its longest pause took; a
// stream that does not end within the time is a failure.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_thread.h"
#include "server/api_server.h"

namespace {

using namespace deepinfer;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::int32_t kContext = 1024;
constexpr std::chrono::seconds kPatience{120};

struct ClientStream {
  int socket = -1;
  SteadyTime begin;
  SteadyTime last;
  double first_seconds = 0;  ///< to the first event
  double longest_gap_seconds = 0;
  std::size_t num_events = 0;
  std::string tail;  ///< the last bytes, to see events and the end across reads
  bool is_complete = false;
};

double seconds(SteadyTime from, SteadyTime to) { return std::chrono::duration<double>(to - from).count(); }

std::shared_ptr<const server::ServedModel> make_model(std::int32_t num_streams, const tokenizer::Tokenizer& tokenizer) {
  const auto vocab = static_cast<std::size_t>(tokenizer.vocab_size());
  auto logits = std::make_shared<std::vector<float>>(vocab * static_cast<std::size_t>(num_streams), -20.0F);
  const auto word = static_cast<std::size_t>(tokenizer.encode(" la", tokenizer::AddedTokens::ignore).front().value);
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_streams); ++row) {
    (*logits)[row * vocab + word] = 20.0F;
  }
  engine::EngineParts parts{.model = engine::synchronous([logits, vocab](std::span<const model::Chunk> chunks) {
                              std::size_t num_rows = 0;
                              for (const model::Chunk& chunk : chunks) {
                                num_rows += static_cast<std::size_t>(chunk.num_logit_rows);
                              }
                              return std::span<const float>(*logits).first(num_rows * vocab);
                            }),
                            .token_bytes = [tokenizer](TokenId id) { return tokenizer.bytes(id); },
                            .vocab_size = tokenizer.vocab_size(),
                            .eos = {1},
                            .geometry = {.positions_per_block = 128,
                                         .num_blocks = 1 + num_streams * kContext / 128,
                                         .num_slots = 1 + num_streams}};
  const engine::EngineOptions options{.max_requests = num_streams, .max_batched_tokens = num_streams + 2048, .max_model_len = kContext};
  return std::make_shared<const server::ServedModel>(server::ServedModel{
      .name = "nano",
      .device = "none",
      .context_length = kContext,
      .convert = server::convert_options("nano"),
      .tokenizer = tokenizer,
      .engine = std::make_shared<engine::EngineThread>(std::make_unique<engine::Engine>(std::move(parts), options))});
}

int open_stream(std::uint16_t port, std::int32_t num_tokens) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return -1;
  }
  const std::string body = R"({"model":"nano","messages":[{"role":"user","content":"Sing."}],"thinking":{"type":"disabled"},)"
                           R"("stream":true,"ignore_eos":true,"temperature":0,"max_tokens":)" +
                           std::to_string(num_tokens) + "}";
  const std::string request =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  return ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()) ? socket : -1;
}

/// True while the stream goes on.
bool read_some(ClientStream& stream) {
  std::array<char, 16384> buffer;
  const ssize_t size = ::recv(stream.socket, buffer.data(), buffer.size(), 0);
  if (size <= 0) {
    return false;
  }
  const SteadyTime now = std::chrono::steady_clock::now();
  std::string text = stream.tail + std::string(buffer.data(), static_cast<std::size_t>(size));
  const std::size_t num_old = stream.tail.size();
  for (std::size_t at = text.find("data: "); at != std::string::npos; at = text.find("data: ", at + 1)) {
    stream.num_events += at + 6 > num_old ? 1 : 0;
  }
  if (stream.num_events > 0 && stream.first_seconds == 0) {
    stream.first_seconds = seconds(stream.begin, now);
  } else if (stream.first_seconds > 0) {
    stream.longest_gap_seconds = std::max(stream.longest_gap_seconds, seconds(stream.last, now));
  }
  stream.last = now;
  stream.is_complete = text.find("data: [DONE]") != std::string::npos;
  stream.tail = text.substr(text.size() - std::min<std::size_t>(text.size(), 12));
  return !stream.is_complete;
}

void print_quantiles(const char* name, std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&values](double share) {
    return 1e3 * values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
  };
  std::printf("%-24s p50 %8.1f ms   p99 %8.1f ms   most %8.1f ms\n", name, at(0.5), at(0.99), 1e3 * values.back());
}

}  // namespace

int main(int argc, char** argv) {
  const std::int32_t num_streams = argc > 1 ? std::atoi(argv[1]) : 1000;
  const std::int32_t num_tokens = argc > 2 ? std::atoi(argv[2]) : 100;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto tokenizer = tokenizer::Tokenizer::load(DEEPINFER_MODELS "/nano/tokenizer.json");
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  server::ApiServerOptions options;
  options.http.port = 0;
  auto server = server::ApiServer::start(std::move(options));
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  const auto model = make_model(num_streams, *tokenizer);
  (*server)->serve(model);

  const int poll = ::epoll_create1(0);
  std::vector<ClientStream> streams(static_cast<std::size_t>(num_streams));
  const SteadyTime begin = std::chrono::steady_clock::now();
  for (ClientStream& stream : streams) {
    stream.begin = std::chrono::steady_clock::now();
    stream.socket = open_stream((*server)->port(), num_tokens);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &stream}};
    if (stream.socket < 0 || ::epoll_ctl(poll, EPOLL_CTL_ADD, stream.socket, &event) != 0) {
      std::fprintf(stderr, "a connection cannot be made\n");
      return 1;
    }
  }
  std::printf("%d requests sent in %.2f s\n", num_streams, seconds(begin, std::chrono::steady_clock::now()));
  std::int32_t num_open = num_streams;
  std::array<epoll_event, 256> events;
  while (num_open > 0 && std::chrono::steady_clock::now() - begin < kPatience) {
    const int num_ready = ::epoll_wait(poll, events.data(), static_cast<int>(events.size()), 1000);
    for (int i = 0; i < num_ready; ++i) {
      auto& stream = *static_cast<ClientStream*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (!read_some(stream)) {
        ::epoll_ctl(poll, EPOLL_CTL_DEL, stream.socket, nullptr);
        ::close(stream.socket);
        --num_open;
      }
    }
  }
  const double all_seconds = seconds(begin, std::chrono::steady_clock::now());
  std::vector<double> firsts;
  std::vector<double> gaps;
  std::size_t num_events = 0;
  std::int64_t num_complete = 0;
  for (const ClientStream& stream : streams) {
    firsts.push_back(stream.first_seconds);
    gaps.push_back(stream.longest_gap_seconds);
    num_events += stream.num_events;
    num_complete += stream.is_complete ? 1 : 0;
  }
  std::printf("%d streams of %d tokens: %lld complete, %zu events in %.2f s = %.0f events/s\n", num_streams, num_tokens,
              static_cast<long long>(num_complete), num_events, all_seconds, static_cast<double>(num_events) / all_seconds);
  print_quantiles("to the first event", std::move(firsts));
  print_quantiles("longest pause", std::move(gaps));
  const engine::EngineStats stats = model->engine->stats();
  std::printf("steps %lld, mean %.2f ms; blocks in use afterwards %d\n", static_cast<long long>(stats.num_steps),
              1e3 * all_seconds / static_cast<double>(stats.num_steps), stats.num_blocks_used);
  return num_complete == num_streams ? 0 : 1;
}

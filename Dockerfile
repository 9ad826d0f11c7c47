# context-bench in a container, by the versions of lock.txt: `make image`, then
#   docker run --rm -v "$PWD:/work" -u "$(id -u)" context-bench run --help
# Servers (watch, view, serve) bind loopback, so they want the host's network: docker run --network host ….
# Keys are given at run time (-e OPENAI_API_KEY) and are in no layer.
FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml lock.txt README.md LICENSE ./
COPY scripts/metadata.py scripts/metadata.py
COPY share share
COPY src src
# Versions without hashes and extras, as a file of constraints may have them.
RUN sed -n 's/^\([A-Za-z0-9._-]*\)\(\[[^]]*\]\)\{0,1\}\(==[^\\]*[^\\ ]\) *\\\{0,1\}$/\1\3/p' lock.txt > constraints.txt \
    && python -m venv /opt/context-bench \
    && /opt/context-bench/bin/pip install --no-cache-dir --constraint constraints.txt .

FROM python:3.12.11-slim-bookworm
COPY --from=build /opt/context-bench /opt/context-bench
RUN useradd --create-home --uid 10001 bench && mkdir /work && chown bench /work
# Whoever it runs as, models that are fetched stay in the folder that is mounted.
ENV PATH=/opt/context-bench/bin:$PATH PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=/work/.cache
USER 10001
WORKDIR /work
ENTRYPOINT ["context-bench"]
CMD ["--help"]

import shmjet
from shmjet import DAG, between, sinks, sources


def connect(dag, source, sink):
    def vertex(d):
        if d.expand:
            return d.expand(dag, d.name, d.parallelism)
        return dag.new_unique_vertex(d.name, d.supplier, d.parallelism)

    s, t = vertex(source), vertex(sink)
    dag.edge(between(s, t))
    return dag


def test_it(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a":1}\n{"a":2}\n')
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as jet:
        r = sinks.collect()
        jet.new_job(connect(DAG(), sources.json(tmp_path / "a.jsonl"), r)).run(60)
        print(list(r), list(r))
        r = sinks.collect()
        jet.new_job(connect(DAG(), sources.items(range(200000)), r)).run(60)
        assert sorted(r) == list(range(200000))
        jet.new_job(connect(DAG(), sources.items(range(20)), sinks.csv(tmp_path / "o", ["n"]))).execute().exception(60)
        jet.new_job(connect(DAG(), sources.items([(1, 2), (3, 4)]), sinks.csv(tmp_path / "o", ["n", "m"]))).run(60)
        r = sinks.collect()
        jet.new_job(connect(DAG(), sources.csv(tmp_path / "o"), r)).run(60)
        print(list(r))
        jet.new_job(
            connect(DAG(), sources.items([(1, 2), (3, 4), (1, 5)]), sinks.map("m", merge_fn=lambda a, b: a + b))
        ).run(60)
        print(dict(jet.get_map("m")))

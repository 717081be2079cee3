"""`substratctl web`: the page and its API, in a process of their own, a client of the operator socket like any other.

`routes` says which path stands for which method of the protocol, `app` serves them, `openapi` describes them, `streams`
sends events, `access` decides who may. The page in `page/` is a document, its styles and native JavaScript modules
without a build step. Needs the extra `web`.
"""
